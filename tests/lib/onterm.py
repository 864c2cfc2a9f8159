#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""onterm [STEP...] -- CMD...: run a command on a terminal of its own, as an interactive shell would, and work it.

The command is a job (a process group in the terminal's foreground) of a session leader that sees it stop and end. Steps:

    wait:REGEX     until the output matches (searched from the last match on)
    type:TEXT      \\e \\n \\xNN as in Python; ^Z is \\x1a
    size:ROWSxCOLS
    kill:SIGNAL    to the command's own process
    stopped        until the job is stopped;  cont: let it go on
    still:SECONDS  it neither stops nor ends for so long
    close          the terminal goes away
    run:COMMAND    with sh, beside it; has to succeed

After the steps it waits for the end, prints what the terminal showed, then "status N" (128+N: a signal) and "modes same|changed": whether
the terminal is as it was before. Status 0 when every step worked, within 20 s each; else 1, with the step.
"""
import fcntl, os, pty, re, select, signal, struct, subprocess, sys, termios, time

LIMIT = 20


def leader(argv, tell, ask):
    signal.signal(signal.SIGTTOU, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    pid = os.fork()
    if pid == 0:
        os.setpgid(0, 0)
        os.tcsetpgrp(0, os.getpid())
        for s in (signal.SIGTTOU, signal.SIGHUP, signal.SIGPIPE):
            signal.signal(s, signal.SIG_DFL)
        os.close(tell)
        os.close(ask)
        os.execvp(argv[0], argv)
    os.write(tell, b"pid %d\n" % pid)
    while True:
        _, st = os.waitpid(pid, os.WUNTRACED)
        if os.WIFSTOPPED(st):
            os.write(tell, b"stopped 0\n")
            os.read(ask, 1)
            os.killpg(pid, signal.SIGCONT)
            continue
        end = os.WEXITSTATUS(st) if os.WIFEXITED(st) else 128 + os.WTERMSIG(st)
        os.write(tell, b"end %d\n" % end)
        os.read(ask, 1)     # the terminal lives until its modes were looked at
        os._exit(0)


class Job:
    def __init__(self, argv):
        self.told, tell = os.pipe()
        ask, self.ask = os.pipe()
        self.pid, self.master = pty.fork()
        if self.pid == 0:
            os.close(self.told)
            os.close(self.ask)
            leader(argv, tell, ask)
        os.close(tell)
        os.close(ask)
        self.shown, self.seen, self.news, self.text = b"", 0, {}, b""

    def modes(self):
        return termios.tcgetattr(self.master) if self.master >= 0 else None

    def look(self, seconds):
        fds = [self.told] + ([self.master] if self.master >= 0 else [])
        for fd in select.select(fds, [], [], seconds)[0]:
            try:
                got = os.read(fd, 65536)
            except OSError:
                got = b""
            if fd == self.master:
                self.shown += got
                continue
            self.text += got
            while b"\n" in self.text:
                line, self.text = self.text.split(b"\n", 1)
                word, n = line.split()
                self.news[word.decode()] = int(n)

    def until(self, true):
        end = time.monotonic() + LIMIT
        while not true():
            if time.monotonic() > end:
                return False
            self.look(0.1)
        return True

    def step(self, word):
        kind, _, arg = word.partition(":")
        if kind == "wait":
            def found():
                m = re.search(arg.encode(), self.shown[self.seen:])
                if m:
                    self.seen += m.end()
                return m
            return self.until(found)
        if kind == "type":
            os.write(self.master, arg.encode().decode("unicode_escape").encode("latin-1"))
        elif kind == "size":
            rows, cols = map(int, arg.split("x"))
            fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, cols, 0, 0))
        elif kind == "kill":
            os.kill(self.news["pid"], getattr(signal, "SIG" + arg))
        elif kind == "stopped":
            return self.until(lambda: "stopped" in self.news)
        elif kind == "cont":
            del self.news["stopped"]
            os.write(self.ask, b"c")
        elif kind == "still":
            end = time.monotonic() + float(arg)
            while time.monotonic() < end:
                self.look(0.05)
            return "stopped" not in self.news and "end" not in self.news
        elif kind == "close":
            os.close(self.master)
            self.master = -1
        elif kind == "run":
            return subprocess.run(["sh", "-c", arg], stdin=subprocess.DEVNULL, timeout=LIMIT).returncode == 0
        else:
            return False
        return True


def main():
    at = sys.argv.index("--")
    job = Job(sys.argv[at + 1:])
    before, failed = job.modes(), None
    if not job.until(lambda: "pid" in job.news):
        failed = "start"
    for word in sys.argv[1:at]:
        if failed is None and not job.step(word):
            failed = word
    if failed is None and not job.until(lambda: "end" in job.news):
        failed = "the end"
    job.look(0.05)
    after = job.modes()
    if "end" not in job.news and "pid" in job.news:
        os.kill(job.news["pid"], signal.SIGKILL)
        os.kill(job.news["pid"], signal.SIGCONT)
    sys.stdout.write(job.shown.decode("utf-8", "replace").replace("\r", ""))
    print("\nstatus %s\nmodes %s" % (job.news.get("end"), "same" if after == before else "changed"))
    if failed is not None:
        print("not so: " + failed)
    os.kill(job.pid, signal.SIGKILL)
    os.waitpid(job.pid, 0)
    sys.exit(1 if failed is not None else 0)


main()
