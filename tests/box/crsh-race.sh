#!/bin/bash
# Names of the library, and lists that are meant to be split:
# shellcheck disable=SC2154,SC2034,SC2046,SC2086
# CRSH-06, CRSH-07, b18, RES-17: two verbs on one box at once: one wins, the other is told, nothing is stuck and nothing is left
# modes: root
# seconds: 120
. "${TEST_LIB:?}/box.bash"
. "$SRC/tests/fault/left.bash"
need_template tiny
ROUNDS=${ROUNDS:-60}

# both N A B: A and B at once, N times; each ends within its time with a status of 0, 1, 125 or a killed command's, and a message
# when not 0. `again` brings the box back.
both() {
	local n=$1 a=$2 b=$3 i sa sb won=0
	for ((i = 0; i < n; i++)); do
		again
		timeout 20 bash -c "$a" >"$LAB/work/a" 2>&1 </dev/null &
		local pa=$!
		sb=0 sa=0
		timeout 20 bash -c "$b" >"$LAB/work/b" 2>&1 </dev/null || sb=$?
		wait "$pa" || sa=$?
		((_checks++))
		if [[ $sa != @(0|1|125|137|143) || $sb != @(0|1|125|137|143) ]]; then
			fail "round $i: '$a' ended with $sa ($(head -c 200 "$LAB/work/a")), '$b' with $sb ($(head -c 200 "$LAB/work/b"))"
			return
		fi
		[[ $sa == 0 || -s $LAB/work/a ]] && [[ $sb == 0 || -s $LAB/work/b ]] || { fail "round $i: a failure without a word"; return; }
		((sa == 0 || sb == 0)) && ((won++))
	done
	want $won -ge $((n * 9 / 10))
	want_soon 6 left
}
again() { cubby start x </dev/null >/dev/null 2>&1 || cubby new x --template tiny </dev/null >/dev/null 2>&1 || fail "no box x: $(cubby ls </dev/null 2>&1)"; }

t "CRSH-06: start and stop at once"
both "$ROUNDS" 'cubby stop --force x' 'cubby start x'
t "CRSH-06: rm and exec at once"
both "$ROUNDS" 'cubby rm --force x' 'cubby exec x -- true'
t "CRSH-06: rename and exec at once"
both "$ROUNDS" 'cubby rename x y; cubby rename y x' 'cubby exec x -- true'
t "CRSH-06: two removals, two creations at once: one does it, the other is told"
for ((i = 0; i < ROUNDS / 3; i++)); do
	again
	for k in 1 2 3 4; do (cubby rm --force x </dev/null >/dev/null 2>"$LAB/work/rm.$k"; echo $? >"$LAB/work/st.$k") & done
	wait
	want "$(cat "$LAB"/work/st.* | sort | uniq -c | tr -s ' \n' ' ')" = " 1 0 3 1 "
	want "$(cat "$LAB"/work/rm.* | grep -c "no box 'x'")" = 3
	for k in 1 2 3 4; do (cubby new x --template tiny </dev/null >/dev/null 2>"$LAB/work/rm.$k"; echo $? >"$LAB/work/st.$k") & done
	wait
	want "$(cat "$LAB"/work/st.* | sort | uniq -c | tr -s ' \n' ' ')" = " 1 0 3 1 "
	want "$(cat "$LAB"/work/rm.* | grep -c "there is a box 'x' already")" = 3
	((_bad)) && break
done
want_soon 5 left
t "CRSH-06: stop and exec, pause and rm, limits and stop at once"
both $((ROUNDS / 2)) 'cubby stop --grace 0s x' 'cubby exec x -- true'
both $((ROUNDS / 2)) 'cubby pause x' 'cubby rm --force x'
both $((ROUNDS / 2)) 'cubby limits x --pids 99' 'cubby stop --force x'

t "b18: resume right after pause, fifty times: running, and it answers"
again
for ((i = 0; i < 50; i++)); do
	cubby pause x </dev/null >/dev/null && cubby resume x </dev/null >/dev/null && cubby exec x -- true </dev/null || { fail "round $i"; break; }
	((_checks++))
done
want "$(field x .state)" = running
(cubby pause x & cubby resume x & cubby pause x & cubby resume x & wait) </dev/null >/dev/null 2>&1
want_status 0 cubby resume x
want_status 0 cubby exec x -- true
want_status 0 cubby pause x
want_status 0 cubby rm --force x
want_status 0 left

t "CRSH-07: rm a missing b: a and b go, the missing one is named"
want_status 0 cubby new a --template tiny
want_status 0 cubby new b --template tiny
want_err 1 "no box 'missing'" cubby rm --force a missing b
want "$(cubby ls --names </dev/null)" = ''
want_status 0 left

t "RES-16: 200 commands at once in one box: each has its own status and output"
want_status 0 cubby new x --template tiny
mkdir "$LAB/work/many"
for ((i = 0; i < 200; i++)); do
	(s=0; timeout 30 cubby exec x -- sh -c "echo out $i; exit $((i % 100))" </dev/null >"$LAB/work/many/$i" 2>&1 || s=$?; echo "$s" >>"$LAB/work/many/$i") &
done
wait
wrong=0
for ((i = 0; i < 200; i++)); do
	[[ $(<"$LAB/work/many/$i") == "out $i"$'\n'"$((i % 100))" ]] || { ((wrong++)); note "$i: $(head -c 200 "$LAB/work/many/$i" | tr '\n' '|')"; }
done
want $wrong = 0
want_status 0 cubby exec x -- true

t "60 throw-away boxes at once: each answers, none is left"
for ((i = 0; i < 60; i++)); do
	(s=0; timeout 60 cubby run --template tiny -- sh -c "echo out $i; exit $((i % 50))" </dev/null >"$LAB/work/many/$i" 2>&1 || s=$?; echo "$s" >>"$LAB/work/many/$i") &
done
wait
wrong=0
for ((i = 0; i < 60; i++)); do
	[[ $(<"$LAB/work/many/$i") == "out $i"$'\n'"$((i % 50))" ]] || { ((wrong++)); note "$i: $(head -c 200 "$LAB/work/many/$i" | tr '\n' '|')"; }
done
want $wrong = 0
want_soon 10 left

t "a client that is killed at any time takes its throw-away box along"
for d in 0 0.002 0.004 0.006 0.01 0.02 0.05; do
	cubby run --template tiny -- sleep 50 </dev/null >/dev/null 2>&1 &
	p=$!
	sleep "$d"
	kill -9 "$p"
	wait "$p" 2>/dev/null
done
want_soon 8 left

t "RES-17: the process ids go round: no verb acts on a process that took the number of a box's first one"
want_status 0 cubby stop --force x
want_status 0 cubby start x
pid=$(field x .pid)
want_status 0 daemon_stop
kill -9 "$pid"
want_soon 5 test ! -d "/proc/$pid"
# A process of ours with that number, where the kernel lets us choose (ns_last_pid, of a pid namespace of our own).
taken=$(sh -c 'echo $(($1 - 1)) >/proc/sys/kernel/ns_last_pid && { sleep 300 >/dev/null 2>&1 & echo $!; }' sh "$pid" 2>/dev/null)
want_status 0 cubby ls -q
want "$(field x .state)" = stopped
want_status 0 cubby stop --force x
want_status 0 cubby rm --force x
if [[ $taken == "$pid" ]]; then
	want -d "/proc/$pid"
else
	skip "the number $pid could not be had (got ${taken:-none})"
fi
[[ -z $taken ]] || kill "$taken"
want_soon 5 left
want_status 0 left_rows
