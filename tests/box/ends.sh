#!/bin/bash
# Names of the library, and lists that are meant to be split:
# shellcheck disable=SC2154,SC2034,SC2046,SC2086
# how commands and boxes end: each end in words, in --json and in the exit status, through exec and through run
# modes: root user userns
# seconds: 100
. "${TEST_LIB:?}/box.bash"
need_template tiny

weak=
[[ $LAB_AS == root ]] || weak=--allow-weaker
# jend KEY: of the last line that a call with --json wrote to standard error.
jend() { tail -n 1 "$_err" | jq -r ".$1"; }
# ended STATUS END TEXT: the last call, in all three ways. TEXT is a regular expression on the words for people.
ended() {
	want "$STATUS" = "$1"
	want "$(jend status)" = "$1"
	want "$(jend end)" = "$2"
	want "$(grep -cE "^cubby: .*$3" "$_err")" = 1
	want "$(jend text | grep -cE "$3")" = 1
}
# background NAME CMD...: start it; its output goes to files of that name. finished NAME: wait, and set STATUS as call does.
background() {
	local name=$1
	shift
	: >"$LAB/work/$name.out"
	timeout -k 2 "$CALL_SECONDS" "$@" >>"$LAB/work/$name.out" 2>"$LAB/work/$name.err" </dev/null &
	bg[$name]=$!
}
finished() {
	STATUS=0
	wait "${bg[$1]}" || STATUS=$?
	cp "$LAB/work/$1.out" "$_out"
	cp "$LAB/work/$1.err" "$_err"
	OUT=$(tr -d '\0' <"$_out") ERR=$(tr -d '\0' <"$_err")
}
declare -A bg
has_line() { grep -q "$2" "$LAB/work/$1.out"; }

t "a command's own status and signal pass through"
# shellcheck disable=SC2086
want_status 0 cubby new box $weak --template tiny
want_status 0 cubby exec box -- true
want_status 37 cubby exec box -- sh -c 'exit 37'
want_status 255 cubby exec box -- sh -c 'exit 255'
call cubby exec --json box -- sh -c 'exit 37'
want "$STATUS:$(jend status):$(jend exit):$(jend end)" = 37:37:37:exited
want_status 143 cubby exec box -- probe end-by 15
call cubby exec --json box -- probe end-by 11
want "$STATUS:$(jend status):$(jend signal):$(jend end)" = 139:139:11:signaled
want "$(jend text)" = "'probe' crashed (signal SEGV)"
# shellcheck disable=SC2086
want_status 37 cubby run $weak --template tiny -- sh -c 'exit 37'
# shellcheck disable=SC2086
want_status 137 cubby run $weak --template tiny -- probe end-by 9

t "b17: what can't be run ends at once: 127 when it isn't there, 126 when it can't"
SECONDS=0
call cubby exec --json box -- nosuchcmd
ended 127 not-started "cannot run 'nosuchcmd'"
call cubby exec --json box -- /bin/nosuch/cmd
ended 127 not-started "cannot run '/bin/nosuch/cmd'"
call cubby exec --json box -- /etc/passwd
ended 126 not-started "cannot run '/etc/passwd'.*ermission"
want_status 0 cubby exec --user root box -- sh -c 'printf "#!/no/interpreter\n" >/s && printf garbage >/g && chmod 755 /s /g'
call cubby exec --json box -- /s
ended 127 not-started "cannot run '/s'"
call cubby exec --json box -- /g
ended 126 not-started "cannot run '/g'"
call cubby exec --json box -- /bin
ended 126 not-started "cannot run '/bin'"
# shellcheck disable=SC2086
call cubby run --json $weak --template tiny -- nosuchcmd
ended 127 not-started "cannot run 'nosuchcmd'"
# shellcheck disable=SC2086
call cubby run --json $weak --template tiny -- /etc/passwd
ended 126 not-started "cannot run '/etc/passwd'"
want $SECONDS -le 8
want_status 0 cubby exec box -- true

t "timed out"
call cubby exec --json --timeout 300ms box -- sleep 30
ended 124 timed-out "'sleep' was ended after 300ms"
want "$(jend wall_ms)" -ge 300
want "$(jend wall_ms)" -lt 4000
# shellcheck disable=SC2086
call cubby run --json $weak --timeout 300ms --template tiny -- sleep 30
ended 124 timed-out "'sleep' was ended after 300ms"
call cubby exec --json --timeout 10s box -- true
want "$STATUS:$(jend end)" = 0:exited

t "b02: a timeout ends all of the call: other sessions, what ignores signals, what forks"
SECONDS=0
call cubby exec --json --timeout 500ms box -- sh -c 'setsid sh -c "while :; do :; done" & probe stubborn & sleep 100'
want "$STATUS:$(jend end)" = 124:timed-out
want $SECONDS -le 4
# Only the shell of this question is there, and PID 1 with the handler of this call.
want_out '^0$' cubby exec --user root box -- sh -c \
	'n=0; for p in /proc/[0-9]*; do c=$(tr "\0" " " 2>/dev/null <$p/cmdline) || :; case $c in *stubborn*|*while*|*"sleep 100"*) case $c in *n=0*) ;; *) n=$((n+1));; esac;; esac; done; echo $n'

t "b20: a background process that holds the output keeps nobody waiting, and lives on"
SECONDS=0
want_out '^started$' cubby exec box -- sh -c 'sleep 600 & echo started'
want_out '^started$' cubby exec box -- sh -c 'trap "" HUP; sleep 601 >/dev/null & echo started'
want_out '^started$' cubby exec box -- sh -c 'sleep 602 >/dev/null <&- & echo started'
# shellcheck disable=SC2086
want_out '^started$' cubby run $weak --template tiny -- sh -c 'sleep 603 & echo started'
want $SECONDS -le 5
want_out '^3$' cubby exec box -- sh -c 'n=0; for i in 0 1 2; do grep -q "^sleep.60$i" /proc/[0-9]*/cmdline && n=$((n+1)); done; echo $n'

t "stopped while a command runs"
background s cubby exec --json box -- sh -c 'echo up; exec sleep 100'
want_soon 5 has_line s up
want_status 0 cubby stop --grace 1s box
finished s
ended "$STATUS" stopped "the box was stopped"
want "$STATUS" -gt 128
want "$(field box .state)" = stopped

t "stopped by force while a command runs that ignores signals"
want_status 0 cubby start box
background s cubby exec --json box -- probe stubborn
want_soon 5 has_line s ready
want_status 0 cubby stop --force box
finished s
ended 137 stopped "the box was stopped"

t "a grace that is over ends what ignores signals"
want_status 0 cubby start box
background s cubby exec --json box -- probe stubborn
want_soon 5 has_line s ready
SECONDS=0
want_status 0 cubby stop --grace 1s box
want $SECONDS -le 6
finished s
ended 137 stopped "the box was stopped"

t "removed while a command runs"
want_status 0 cubby start box
background s cubby exec --json box -- sh -c 'echo up; exec sleep 100'
want_soon 5 has_line s up
want_status 0 cubby rm --force box
finished s
want "$STATUS" = 137
want "$(jend status)" = 137
want "$(jend end)" = removed
want "$(grep -cE "^cubby: box 'box': .*remove" "$_err")" = 1
want_err 1 "no box 'box'" cubby info box

t "crashed: cubby-init killed from outside"
# shellcheck disable=SC2086
want_status 0 cubby new box $weak --template tiny
background s cubby exec --json box -- sh -c 'echo up; exec sleep 100'
want_soon 5 has_line s up
pid=$(field box .pid)
want "$pid" -gt 1
kill -9 "$pid"
finished s
ended 137 crashed 'crashed: its first process ended'
want "$(field box .state)" = stopped
want "$(field box .why)" = 'crashed: its first process ended'
want_out 'crashed' cubby logs box
want_status 0 cubby exec box -- true
want "$(field box .state)" = running

t "crashed, in a throw-away box"
# shellcheck disable=SC2086
background s cubby run --json $weak --template tiny -- sh -c 'echo up; exec sleep 100'
want_soon 5 has_line s up
pid=$(cubby ls --json </dev/null | jq -r '.[]|select(.throw_away).pid')
want "$pid" -gt 1
kill -9 "$pid"
finished s
ended 137 crashed 'crashed: its first process ended'

t "killed by another's hand inside: said as a signal, the box goes on"
background s cubby exec --json box -- sh -c 'echo $$; exec sleep 111'
want_soon 5 has_line s .
want_status 0 cubby exec --user root box -- kill -9 "$(cat "$LAB/work/s.out")"
finished s
ended 137 signaled "'sh' killed \(signal KILL\)"
want_status 0 cubby exec box -- true

t "RES-13: signals to PID 1 from inside don't end the box"
blocked_kill() { cubby exec --user root box -- sh -c 'probe signal-flood 1 20; kill -9 1; kill -STOP 1; kill -TERM 1; :'; }
want_status 0 blocked_kill
want_status 0 cubby exec box -- true
want "$(field box .state)" = running
# The same kill where it may: another process of the box.
want_status 137 cubby exec --user root box -- sh -c 'kill -9 $$'

can_limit=1
[[ $(field box '.grade[]|select(.id=="memory-limit").level') == on ]] || can_limit=
limits_or_skip() {
	[[ -n $can_limit ]] && return 0
	skip "no cgroup of the memory and pids controllers for this user"
	return 1
}

t "a limit that can't be set is refused with what to do"
if [[ -n $can_limit ]]; then
	want_status 0 cubby limits box --memory 1G
else
	want_err 1 'no memory cgroup.*doctor' cubby limits box --memory 64M
	want_err 1 'no memory cgroup.*doctor' cubby limits box --memory 65M
	want_status 0 cubby exec box -- true
fi

t "out of memory"
if limits_or_skip; then
	want_status 0 cubby limits box --memory 64M
	call cubby exec --json box -- probe alloc 30M
	want "$STATUS:$(jend end)" = 0:exited
	call cubby exec --json box -- probe alloc 200M
	ended 137 oom 'out of memory \(its limit is 64 MiB\)'
	call cubby exec --json box -- sh -c 'probe alloc 200M; exit 3'
	ended 3 oom 'out of memory'
	want_out '"oom"' cubby logs --json box
	call cubby run --json --memory 64M --template tiny -- probe alloc 200M
	ended 137 oom 'out of memory \(its limit is 64 MiB\)'
	# What happened before isn't blamed on the next one.
	call cubby exec --json box -- false
	want "$STATUS:$(jend end)" = 1:exited
	want_status 0 cubby limits box --memory 1G
	call cubby exec --json box -- probe alloc 200M
	want "$STATUS:$(jend end)" = 0:exited
fi

t "too many processes"
if limits_or_skip; then
	want_status 0 cubby limits box --pids 40
	call cubby exec --json box -- probe fork 10
	want "$STATUS:$(jend end)" = 0:exited
	call cubby exec --json box -- probe fork 100
	ended 1 pids 'too many processes \(its limit is 40\)'
	call cubby exec --json box -- false
	want "$STATUS:$(jend end)" = 1:exited
	call cubby run --json --pids 40 --template tiny -- probe fork 100
	ended 1 pids 'too many processes \(its limit is 40\)'
	want_status 0 cubby limits box --pids 400
	call cubby exec --json box -- probe fork 100
	want "$STATUS:$(jend end)" = 0:exited
fi

t "an unknown box, a paused box: 125, and nothing ran"
call cubby exec --json nosuchbox -- true
want "$STATUS:$(jend why)" = 125:no-such-box
if [[ -n $can_limit ]]; then
	want_status 0 cubby pause box
	call cubby exec --json box -- true
	want "$STATUS:$(jend why)" = 125:wrong-state
	want "$(grep -c "cubby resume box" "$_err")" -ge 1
	want_status 0 cubby resume box
	want_status 0 cubby exec box -- true
fi
