#!/bin/bash
# Names of the library, and lists that are meant to be split:
# shellcheck disable=SC2154,SC2034,SC2046,SC2086
# CRSH-01, CRSH-02: kill -9 of the daemon, a builder, the command and a box's first process, at step after step of each verb;
# after each the next command works, no box that was promised is lost, and nothing is left that nobody owns.
# SWEEP=1 in the environment visits every step; otherwise some, spread over all.
# modes: root
# seconds: 240
. "${TEST_LIB:?}/box.bash"
. "$SRC/tests/fault/left.bash"
step=$BUILD/tests/fault/step
POINTS=${POINTS:-9}
CALL_SECONDS=30
need_template tiny

ready() {	# ready BOX STATE: make it be so
	case $2 in
	none) ;;
	running) cubby new "$1" --template tiny ;;
	stopped) cubby new "$1" --template tiny && cubby stop --force "$1" ;;
	esac </dev/null >"$_out" 2>"$_err" || { fail "cannot prepare box $1 ($2)"; _show; }
}
state_of() { cubby info --json "$1" 2>/dev/null </dev/null | jq -r '.state // "none"'; }

# The verbs: what to prepare, what to do, and what must hold when it said that it did (answered) or didn't.
op_new() { cubby new s --template tiny; }
op_start() { cubby start s; }
op_stop() { cubby stop --grace 2s s; }
op_kill() { cubby stop --force s; }
op_rename() { cubby rename s moved; }
op_limits() { cubby limits s --pids 77; }
op_rm() { cubby rm --force s; }
op_exec() { cubby exec s -- true; }
op_run() { cubby run --template tiny -- true; }
op_template() { cubby template create other "dir:$TINY"; }
declare -A before=([new]=none [start]=stopped [stop]=running [kill]=running [rename]=running [limits]=running [rm]=running
	[exec]=running [run]=none [template]=none)
holds() {	# holds OP ANSWERED: is the truth in accordance with the answer?
	local op=$1 answered=$2 s m
	s=$(state_of s)
	case $op:$answered in
	# With the builder go its children: that may be the box's first process, just after the answer.
	new:1 | start:1) [[ $s == running || $kind$s == builderstopped ]] ;;
	new:) [[ $s == @(running|stopped|none) ]] ;;
	stop:1 | kill:1) [[ $s == stopped ]] ;;
	start: | stop: | kill: | exec:* | limits:) [[ $s == @(running|stopped) ]] ;;
	limits:1) [[ $s == @(running|stopped) && $(field s .limits.pids) == 77 ]] ;;
	rename:*)
		m=$(state_of moved)
		[[ $s$m == @(running|stopped)none && -z $answered || $s$m == none@(running|stopped) ]]
		;;
	rm:1) [[ $s == none ]] ;;
	rm:) [[ $s == @(running|stopped|none) ]] ;;
	run:*) [[ -z $(cubby ls --names </dev/null) ]] ;;
	template:1) cubby template info other </dev/null >/dev/null ;;
	template:) cubby template info other </dev/null >/dev/null 2>&1 || [[ ! -e $CUBBY_STATE_DIR/templates/other ]] ;;
	esac
}
# Whatever is there can be used, and removed.
use_up() {
	local name
	if cubby template info other </dev/null >/dev/null 2>&1; then
		cubby run --template other -- true </dev/null || { echo "template unusable"; return 1; }
		cubby template rm --force other </dev/null >/dev/null || return 1
	fi
	for name in $(cubby ls --names </dev/null); do
		cubby exec "$name" -- true </dev/null || { echo "$name is unusable"; return 1; }
		cubby rm --force "$name" </dev/null >/dev/null || { echo "$name can't be removed"; return 1; }
	done
}

targets() {	# targets KIND: process ids
	local d
	case $1 in
	daemon) daemon_pids ;;
	builder) for d in /proc/[0-9]*; do
			[[ $(cat "$d/comm" 2>/dev/null) == cubbyd-builder ]] && echo "${d#/proc/}"
		done ;;
	init) field s .pid ;;
	esac
}

# one KIND OP N: kill at the N-th call. Status 3 when the verb has fewer.
one() {
	local kind=$1 op=$2 n=$3 status=0 watcher answered='' f
	cubby ls -q </dev/null >/dev/null 2>&1 || fail "no daemon before"
	ready s "${before[$op]}"
	: >"$LAB/work/step"
	if [[ $kind == cubby ]]; then
		# The functions above are the words; here the command itself has to be the child.
		# shellcheck disable=SC2046
		timeout -k 2 "$CALL_SECONDS" "$step" "$n" -- $(declare -f "op_$op" | sed -n '3{s/;$//;p}' | sed "s|\"dir:\$TINY\"|dir:$TINY|") \
			>"$LAB/work/step" 2>&1 </dev/null
		status=1
	else
		# shellcheck disable=SC2046
		"$step" $([[ $kind == builder ]] && echo -f) "$n" $(targets "$kind") >"$LAB/work/step" 2>&1 &
		watcher=$!
		want_soon 5 grep -q ready "$LAB/work/step" || cat "$LAB/work/step"
		call "op_$op"
		status=$STATUS
		kill "$watcher" 2>/dev/null
		wait "$watcher" 2>/dev/null
	fi
	((status == 0)) && answered=1
	((status == 124)) && { fail "the command hung ($op, $kind at $n)"; _show; }
	((_checks++))
	# What an earlier daemon left half done is settled by the next one beside its work.
	for ((f = 0; f < 100; f++)); do
		holds "$op" "$answered" && break
		sleep 0.02
	done
	((f < 100)) || { fail "after $op (answer $status) with $kind killed at $n: s is $(state_of s), moved is $(state_of moved)"; _show; }
	want_soon 6 left || note "after $op with $kind killed at $n"
	call use_up
	((STATUS == 0)) || { fail "after $op with $kind killed at $n"; _show; }
	want_soon 6 left || note "after the removal that followed $op with $kind killed at $n"
	grep -q killed "$LAB/work/step" || return 3
}

sweep() {	# sweep KIND OP
	local kind=$1 op=$2 n total stride
	t "$op, with the $kind killed at each step"
	one "$kind" "$op" 0
	total=$(sed -n 's/^calls //p' "$LAB/work/step")
	[[ $total -gt 0 ]] || { fail "nothing to count: $(cat "$LAB/work/step")"; return; }
	stride=$(((total + POINTS - 1) / POINTS))
	[[ -n ${SWEEP-} ]] && stride=1
	# Odd offsets, so that runs with different strides see different steps.
	for ((n = 1 + stride / 2; n <= total; n += stride)); do
		one "$kind" "$op" "$n"
		((_bad)) && break
	done
	note "$kind/$op: $total steps, stride $stride"
}

for op in ${OPS:-new start stop kill rename limits rm exec run template}; do
	for kind in ${KINDS:-daemon builder cubby}; do
		case $kind:$op in
		builder:rename | builder:limits | builder:template | builder:exec) continue ;;
		esac
		sweep "$kind" "$op"
	done
done
for op in ${INIT_OPS:-exec stop rm}; do sweep init "$op"; done

t "the database says the same, and is whole"
want_status 0 left_rows
