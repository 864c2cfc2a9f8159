#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
netdial.py: clients and a server for tests/box/net-*.sh, run inside a network namespace.

	netdial.py dial PORT ADDRESS...		one line each: "ADDRESS ok", "ADDRESS ERRNO", "ADDRESS silent" (2 s)
	netdial.py ping SIZE ADDRESS...		the same with echo requests of so many bytes, icmp(7)
	netdial.py hold N ADDRESS PORT FILE	N connections at once; after 3 s "made M" in FILE; they are kept until standard input ends
	netdial.py serve PORT FILE		on 0.0.0.0 and ::, a line in FILE for each connection; FILE.ready; until standard input ends
	netdial.py flood ADDRESS PORT SECONDS	datagrams of one byte as fast as it goes; prints how many
	netdial.py ask ADDRESS N		N questions for names with labels of 63 letters; prints the milliseconds it took to send them
"""
import errno
import os
import select
import socket
import struct
import sys
import time


def family(addr):
    return socket.AF_INET6 if ":" in addr else socket.AF_INET


def dial(port, *addrs):
    for addr in addrs:
        with socket.socket(family(addr), socket.SOCK_STREAM) as s:
            s.settimeout(2)
            try:
                s.connect((addr, int(port)))
                print(addr, "ok")
            except TimeoutError:
                print(addr, "silent")
            except OSError as e:
                print(addr, errno.errorcode.get(e.errno, e.errno))


def ping(size, *addrs):
    for addr in addrs:
        four = ":" not in addr
        with socket.socket(family(addr), socket.SOCK_DGRAM, socket.IPPROTO_ICMP if four else socket.IPPROTO_ICMPV6) as s:
            s.settimeout(2)
            try:
                s.connect((addr, 0))
                s.send(struct.pack(">BBHHH", 8 if four else 128, 0, 0, 0, 1) + bytes(int(size)))
                print(addr, "ok" if len(s.recv(65536)) == int(size) + 8 else "cut")
            except TimeoutError:
                print(addr, "silent")
            except OSError as e:
                print(addr, errno.errorcode.get(e.errno, e.errno))


def hold(n, addr, port, path):
    socks, made = [], 0
    poll = select.poll()
    for _ in range(int(n)):
        s = socket.socket(family(addr), socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        s.connect_ex((addr, int(port)))
        socks.append(s)
        poll.register(s, select.POLLOUT)
    end, by_fd = time.monotonic() + 3, {s.fileno(): s for s in socks}
    while by_fd and (left := end - time.monotonic()) > 0:
        for fd, _ in poll.poll(left * 1000):
            made += by_fd.pop(fd).getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0
            poll.unregister(fd)
    with open(path, "w", encoding="utf-8") as f:
        f.write(f"made {made}\n")
    while os.read(0, 4096):
        pass


def serve(port, path):
    socks = []
    for addr in ("0.0.0.0", "::"):
        s = socket.socket(family(addr), socket.SOCK_STREAM)
        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if addr == "::":
            s.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        s.bind((addr, int(port)))
        s.listen(1024)
        socks.append(s)
    with open(path + ".ready", "w", encoding="utf-8"):
        pass
    while True:
        for s in select.select([sys.stdin, *socks], [], [])[0]:
            if s is sys.stdin:
                if not os.read(0, 4096):
                    return
                continue
            conn, peer = s.accept()
            with open(path, "a", encoding="utf-8") as f:
                f.write(f"{conn.getsockname()[0]} from {peer[0]}\n")
            conn.close()


def flood(addr, port, seconds):
    s = socket.socket(family(addr), socket.SOCK_DGRAM)
    s.connect((addr, int(port)))
    n, end = 0, time.monotonic() + float(seconds)
    while time.monotonic() < end:
        for _ in range(100):
            try:
                s.send(b"x")
                n += 1
            except OSError:
                pass
    print(n)


def ask(addr, n):
    s = socket.socket(family(addr), socket.SOCK_DGRAM)
    s.connect((addr, 53))
    began = time.monotonic()
    for i in range(int(n)):
        label = f"{i:06d}".encode() + b"x" * 57
        s.send(struct.pack(">HHHHHH", i & 0xffff, 0x0100, 1, 0, 0, 0) + b"\x3f" + label + b"\4leak\7example\3com\0\0\1\0\1")
        if i % 20 == 19:
            time.sleep(0.005)
    print(int((time.monotonic() - began) * 1000))


{"dial": dial, "ping": ping, "hold": hold, "serve": serve, "flood": flood, "ask": ask}[sys.argv[1]](*sys.argv[2:])
