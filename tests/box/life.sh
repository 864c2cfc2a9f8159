#!/bin/bash
# Names of the library, and lists that are meant to be split:
# shellcheck disable=SC2154,SC2034,SC2046,SC2086
# the life of a box: time to live, idleness; and commands in a broken environment (CRSH-10, CRSH-12, b08)
# modes: root user userns
# seconds: 100
. "${TEST_LIB:?}/box.bash"
. "$SRC/tests/fault/left.bash"
need_template tiny
weak=
[[ $LAB_AS == root ]] || weak=--allow-weaker
new() { cubby new $weak --template tiny "$@"; }
state() { [[ $(field "$1" '.state // "none"') == "$2" ]]; }

t "a time to live is over: the box goes, also when nobody asks and while a command runs"
want_status 0 new --ttl 1h short
(timeout 20 cubby exec --json short -- sh -c 'echo begun; exec sleep 50' </dev/null >"$LAB/work/ttl.out" 2>"$LAB/work/ttl"; echo "$?" >"$LAB/work/ttl.st") &
want_status 0 new --ttl 1h long
want_soon 10 grep -qs begun "$LAB/work/ttl.out" # the time begins when the command surely runs
want_status 0 cubby ttl short 1s
want_soon 4 state short none
want_soon 4 test -s "$LAB/work/ttl.st"
want "$(cat "$LAB/work/ttl.st")" = 137
want "$(tail -n 1 "$LAB/work/ttl" | jq -r .end)" = removed
want "$(field long .state)" = running
want_out 'expired' cubby logs
want_soon 4 left

t "a time to live that ends while no daemon runs ends the box at the next start; a stopped box's as well"
want_status 0 new --ttl 1s short
want_status 0 new --ttl 1s short2
want_status 0 cubby stop --force short2
want_status 0 daemon_stop KILL
sleep 1.2
want_soon 4 state short none
want_soon 4 state short2 none
want "$(field long .state)" = running
want_soon 4 left

t "a time to live can be changed and taken away"
want_status 0 new --ttl 1s keep
want_status 0 cubby ttl keep 0
sleep 1.3
want "$(field keep .state)" = running
want_status 0 cubby ttl keep 1s
want_soon 4 state keep none
want_status 0 cubby rm --force long

t "CRSH-09: a jump of the wall clock ends no box whose time runs"
# As a daemon sees it that wakes up with another date: the stored end is a day ahead, or a day ago.
want_status 0 new --ttl 1h jump
want_status 0 new plain
want_status 0 daemon_stop
sqlite3 "$CUBBY_STATE_DIR/cubby.db" "UPDATE boxes SET created=created+86400, started=started+86400, expires=expires+86400 WHERE name='jump'"
call cubby ls
want "$STATUS" = 0
want "$(grep -cE -- '-[0-9]+ *(s|m|h|d)' "$_out")" = 0
want "$(field jump .state):$(field plain .state)" = running:running
if [[ $LAB_AS == root ]]; then
	want_status 0 cubby pause plain
	want_status 0 cubby resume plain
elif ! cubby pause plain </dev/null >/dev/null 2>"$_err"; then
	want "$(grep -c 'no cgroup that can pause' "$_err")" = 1
else
	want_status 0 cubby resume plain
fi
want_status 0 cubby exec jump -- true
want "$(field jump .state)" = running
want_status 0 cubby rm --force jump plain

t "an idle box is stopped, a busy one isn't, and a command starts it again"
want_status 0 new --idle 500ms lazy
want_status 0 new --idle 500ms busy
timeout 20 cubby exec busy -- sleep 2.5 </dev/null >/dev/null 2>&1 &
b=$!
want_soon 5 state lazy stopped
want "$(field lazy .why)" = 'stopped: it was idle'
want "$(field busy .state)" = running
wait "$b"
want_soon 5 state busy stopped
want_status 0 cubby exec lazy -- true
want "$(field lazy .state)" = running
want_status 0 cubby rm --force lazy busy
want_soon 4 left

t "the daemon leaves when nothing is left to look after, and a command finds the next one"
printf 'pool_size = 0\nidle_exit = 200ms\n' >"$CUBBY_CONFIG"
want_status 0 daemon_stop
want_status 0 cubby ls -q
no_daemon() { [[ -z $(daemon_pids) ]]; }
want_soon 4 no_daemon
want_status 0 new back
sleep 0.6
want -n "$(daemon_pids)"
want_status 0 cubby rm --force back
want_soon 4 no_daemon
for ((i = 0; i < 30; i++)); do
	cubby ls -q </dev/null >/dev/null 2>"$_err" || { fail "round $i"; _show; break; }
	sleep 0.2$((RANDOM % 10))
done
printf 'pool_size = 0\n' >"$CUBBY_CONFIG"
want_status 0 daemon_stop

want_status 0 new box
t "CRSH-10: descriptors 0, 1, 2 closed, in every combination; the daemon may have to be started"
for stop in '' 1; do
	for redir in '<&-' '>&-' '2>&-' '<&- >&-' '<&- 2>&-' '>&- 2>&-' '<&- >&- 2>&-'; do
		[[ -n $stop ]] && daemon_stop
		want_status 0 bash -c "cubby exec box -- sh -c 'exit 0' $redir"
		want_status 7 bash -c "cubby exec box -- sh -c 'exit 7' $redir"
		[[ $redir == *'>&-'* && $redir != '2>&-' && $redir != '<&- 2>&-' ]] || want_out '^hi$' bash -c "cubby exec box -- echo hi $redir"
	done
done
# What is closed here is /dev/null there, and no file of the daemon's.
want_status 0 bash -c "cubby exec box -- sh -c 'echo lost; echo lost >&2; test -z \"\$(cat)\"' <&- >&- 2>&-"
want_status 0 left

t "CRSH-10: no HOME, no TERM, no PATH, nothing at all in the environment"
want_out '^ok$' env -u HOME cubby exec box -- echo ok
want_out '^ok$' env -u TERM cubby exec box -- echo ok
want_out '^ok$' env PATH= "$BUILD/src/prog/cubby" exec box -- echo ok
want_out '^ok$' env -i CUBBY_STATE_DIR="$CUBBY_STATE_DIR" CUBBY_RUN_DIR="$CUBBY_RUN_DIR" "$BUILD/src/prog/cubby" exec box -- echo ok
daemon_stop
want_out '^ok$' env -i CUBBY_STATE_DIR="$CUBBY_STATE_DIR" CUBBY_RUN_DIR="$CUBBY_RUN_DIR" CUBBY_CONFIG="$CUBBY_CONFIG" \
	"$BUILD/src/prog/cubby" exec box -- echo ok

t "CRSH-10: a working directory that is gone, and one that can't be entered"
mkdir "$LAB/work/gone"
want_out '^ok$' bash -c "cd $LAB/work/gone && rmdir $LAB/work/gone && exec cubby exec box -- echo ok"
mkdir "$LAB/work/gone"
daemon_stop
want_out '^ok$' bash -c "cd $LAB/work/gone && rmdir $LAB/work/gone && exec cubby exec box -- echo ok"

t "a state directory that isn't the running daemon's is refused, and named; its own is taken"
want_err 1 "looks after $CUBBY_STATE_DIR, not $LAB/work/other" cubby --state-dir "$LAB/work/other" ls
want_status 0 cubby --state-dir "$CUBBY_STATE_DIR" ls

t "CRSH-10: few descriptors: works, or says so"
for n in 3 4 5 6 8 12 20; do
	call bash -c "ulimit -n $n 2>/dev/null; exec cubby exec box -- echo ok"
	((_checks++))
	[[ $STATUS == 0 && $OUT == ok ]] && continue
	[[ $STATUS != 0 && $STATUS -lt 128 && ( -n $ERR || $n -le 3 ) ]] || { fail "with $n descriptors: status $STATUS"; _show; }
done
want "$(bash -c 'ulimit -n 20; exec cubby exec box -- echo ok' </dev/null 2>&1)" = ok
daemon_stop
call bash -c "ulimit -n 20; exec cubby ls -q"
((_checks++))
[[ $STATUS == 0 || ( $STATUS == 1 && -n $ERR ) ]] || { fail "a daemon with 20 descriptors: $STATUS"; _show; }
daemon_stop

t "CRSH-10: ignored and blocked signals, umask 777"
want_out '^ok$' bash -c "trap '' PIPE INT TERM HUP CHLD; exec cubby exec box -- echo ok"
want_out '^7$' bash -c "trap '' CHLD; cubby exec box -- sh -c 'exit 7'; echo \$?"
want_out '^ok$' bash -c "umask 777; exec cubby exec box -- sh -c 'cd /tmp && touch u && cat u && echo ok'"
daemon_stop
want_out '^ok$' bash -c "trap '' PIPE INT TERM HUP CHLD; umask 777; exec cubby exec box -- echo ok"
want_status 0 left

t "CRSH-10: a reader that goes away ends the command"
want_status 0 bash -c 'timeout 10 cubby exec box -- yes </dev/null 2>/dev/null | head -n 1 >/dev/null; exit ${PIPESTATUS[1]}'
want_soon 4 sh -c "! cubby exec box -- sh -c 'grep -qs ^yes /proc/[0-9]*/cmdline' </dev/null"

t "output that can't be written ends the command, with the cause and cubby's own status"
want_status 0 cubby exec box -- sh -c 'echo to a file that takes it' # the same command, where there is room
for to in out err; do
	st=0
	if [[ $to == out ]]; then
		timeout 10 cubby exec box -- sh -c 'echo lost; exec sleep 30' </dev/null >/dev/full 2>"$LAB/work/full" || st=$?
	else
		timeout 10 cubby exec --json box -- sh -c 'echo lost >&2; exec sleep 30' </dev/null 2>/dev/full >"$LAB/work/full" || st=$?
	fi
	want "$st" = 125
	[[ $to == err ]] || want_status 0 grep -q "can't be written.*No space left" "$LAB/work/full"
done

t "CRSH-12: a timeout around the command ends it, there and here"
SECONDS=0
want_status 124 timeout 1 cubby exec box -- sleep 100
want_status 137 timeout -s KILL 1 cubby exec box -- sleep 101
want $SECONDS -le 5
want_soon 4 sh -c "! cubby exec box -- sh -c 'grep -qs ^sleep.10 /proc/[0-9]*/cmdline' </dev/null"

t "b08: user namespaces forbidden: one line with the setting and the remedy, no box, nothing weaker"
# In a user namespace of our own, whose limit is ours to set.
forbidden() {
	unshare --user --map-root-user --mount bash -c 'export CUBBY_STATE_DIR=$LAB/work/b08/state CUBBY_RUN_DIR=$LAB/work/b08/run
		mkdir -p "$LAB/work/b08"
		cubby template create -q tiny "dir:$TINY" && cubby run --allow-weaker --template tiny -- echo control || exit 90
		cubby config --stop-daemon
		echo 0 >/proc/sys/user/max_user_namespaces || exit 91
		for words in "new weaker --template tiny" "new weaker --allow-weaker --template tiny" "run --template tiny -- true"; do
			cubby $words; echo "$words: $?"
		done 2>&1
		cubby ls --names
		cubby doctor
		cubby config --stop-daemon' </dev/null
}
export TINY
if [[ $LAB_AS == root ]]; then
	call forbidden
	if [[ $STATUS == 91 ]]; then
		skip "user.max_user_namespaces can't be set"
	else
		want "$(grep -c '^control$' "$_out")" = 1
		want "$(grep -cE '^(new|run) .*: (1|125)$' "$_out")" = 3
		want "$(grep -cE '^cubby: .*user.max_user_namespaces' "$_out")" = 3
		want "$(grep -c '^weaker$' "$_out")" = 0
		want "$(sed -n '/^run.*: 125$/,$p' "$_out" | grep -c 'max_user_namespaces')" -ge 1
		((_bad)) && _show
	fi
else
	skip "the control needs the lab's root"
fi
want_soon 4 left
want_status 0 cubby rm --force box
