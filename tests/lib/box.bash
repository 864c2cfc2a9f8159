# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
#
# The library of tests/box/*.sh. A file is a list of cases:
#
#	#!/bin/bash
#	# what this file is about
#	# modes: root user userns	(how it runs, see tests/lib/lab.c; "root" when the line is missing)
#	# seconds: 60			(its time limit for one mode; 120 when the line is missing)
#	. "${TEST_LIB:?}/box.bash"
#	need_template tiny
#
#	t "a box runs a command and passes its status on"
#	want_status 3 cubby run --net none --template tiny -- /bin/sh -c 'exit 3'
#	want_out '^hello$' cubby run --net none --template tiny -- /bin/echo hello
#
#	t "no mount can be made read-write again"
#	allowed host_probe remount-rw /sys
#	blocked box_probe mybox remount-rw /sys
#
# A case ends where the next begins. It passes when it checked something and every check held; a case with `blocked`
# needs an `allowed` beside it: a probe that never gets through proves nothing. A file runs in a lab of its own (no
# network but loopback, private mounts, processes, cgroups, /run), with its own daemon: CUBBY_STATE_DIR, CUBBY_RUN_DIR and CUBBY_CONFIG
# point below $LAB. The end of the file ends the boxes and the daemon; what is then still there is a failure of its own.
#
# In the environment: LAB (scratch directory on tmpfs), LAB_AS (root, user, userns), SRC (the source tree), BUILD
# (the build directory), TINY (a tiny root file system as a directory: /bin/busybox with its links, /bin/probe).
# cubby, cubbyd, probe are in the PATH. stdin is /dev/null.

set -u
shopt -s extglob
: "${LAB:?run this through tests/run}" "${LAB_AS:?}" "${SRC:?}" "${BUILD:?}"
TINY=$LAB/work/tiny
CALL_SECONDS=${CALL_SECONDS:-20}	# limit of one call
export PATH="$BUILD/src/prog:$BUILD/src/guest:$BUILD/tests/probe:$BUILD/tests/lib:$PATH"
export LC_ALL=C.UTF-8

_case='' _checks=0 _bad=0 _blocked=0 _allowed=0 _skipped=''
_out=$LAB/work/.out _err=$LAB/work/.err

_close_case() {
	[[ -n $_case ]] || return 0
	if ((_bad)); then
		printf 'not ok - %s\n' "$_case"
	elif [[ -n $_skipped ]]; then
		printf 'skip - %s: %s\n' "$_case" "$_skipped"
	elif ((_checks == 0)); then
		printf '# the case checked nothing\nnot ok - %s\n' "$_case"
	elif ((_blocked && !_allowed)); then
		printf '# "blocked" without an "allowed" that gets through\nnot ok - %s\n' "$_case"
	else
		printf 'ok - %s\n' "$_case"
	fi
	_case='' _checks=0 _bad=0 _blocked=0 _allowed=0 _skipped=''
}

# t NAME: the next case. The name is what it claims.
t() {
	_close_case
	_case=$1
}

# note WORDS: shown with a failure.
note() { printf '# %s\n' "$*"; }

# fail WORDS: the case fails, and goes on.
fail() {
	_bad=1
	((_checks++))
	printf '# line %s: %s\n' "${BASH_LINENO[${2:-0}]}" "$1"
}

_show() {	# what the last call said, some of it
	local f
	for f in "$_out" "$_err"; do
		[[ -s $f ]] || continue
		head -c 1500 "$f" | cat -v | head -n 15 | sed "s/^/#   ${f##*.}: /"
	done
}

# skip REASON: the case can't run here. With CUBBY_MUST_RUN=1 that is a failure.
skip() {
	if [[ ${CUBBY_MUST_RUN-} == 1 ]]; then
		fail "must run, but: $1"
	else
		_skipped=$1
	fi
}

# skip_file REASON: none of the file's cases can run here.
skip_file() {
	t "all of it"
	skip "$1"
	exit 0
}

# call CMD...: run with a time limit; sets STATUS, OUT, ERR. Functions work too.
call() {
	STATUS=0
	if [[ $(type -t "$1") == function ]]; then
		"$@" >"$_out" 2>"$_err" </dev/null || STATUS=$?
	else
		timeout -k 2 "$CALL_SECONDS" "$@" >"$_out" 2>"$_err" </dev/null || STATUS=$?
	fi
	# A NUL in the output is for the caller to look for in the file, not for bash to warn of.
	OUT=$(tr -d '\0' <"$_out") ERR=$(tr -d '\0' <"$_err")
}

# want_status N CMD...: the command ends with status N.
want_status() {
	local want=$1
	shift
	call "$@"
	((_checks++))
	[[ $STATUS == "$want" ]] && return 0
	fail "status $STATUS instead of $want: $*" 1
	_show
	return 1
}

# want_out REGEX CMD...: status 0, and stdout matches (ERE, whole output, ^ and $ at its ends).
want_out() {
	local re=$1
	shift
	call "$@"
	((_checks++))
	if [[ $STATUS == 0 && $OUT =~ $re ]]; then return 0; fi
	fail "status $STATUS, and stdout should match '$re': $*" 1
	_show
	return 1
}

# want_err N REGEX CMD...: status N, and stderr matches.
want_err() {
	local want=$1 re=$2
	shift 2
	call "$@"
	((_checks++))
	if [[ $STATUS == "$want" && $ERR =~ $re ]]; then return 0; fi
	fail "status $STATUS instead of $want, and stderr should match '$re': $*" 1
	_show
	return 1
}

# want_not_out REGEX CMD...: status 0, and stdout does not match.
want_not_out() {
	local re=$1
	shift
	call "$@"
	((_checks++))
	if [[ $STATUS == 0 && ! $OUT =~ $re ]]; then return 0; fi
	fail "status $STATUS, and stdout should not match '$re': $*" 1
	_show
	return 1
}

# want TEST-ARGS...: as test(1).
want() {
	((_checks++))
	# shellcheck disable=SC2244
	[ "$@" ] && return 0
	fail "not so: $*" 1
	return 1
}

# want_soon SECONDS CMD...: the command succeeds within that time (tried every 20 ms).
want_soon() {
	local end=$((SECONDS + $1))
	shift
	((_checks++))
	while ((SECONDS <= end)); do
		"$@" >"$_out" 2>"$_err" </dev/null && return 0
		sleep 0.02
	done
	fail "not within the time: $*" 1
	_show
	return 1
}

# blocked CMD...: a probe (tests/probe) that is refused: status 1, and it says with which errno.
blocked() {
	call "$@"
	((_checks++, _blocked++))
	if [[ $STATUS == 1 && $OUT == *refused* ]]; then return 0; fi
	fail "should be refused, but status $STATUS: $*" 1
	_show
	return 1
}

# allowed CMD...: the same probe where it may: status 0.
allowed() {
	call "$@"
	((_checks++, _allowed++))
	if [[ $STATUS == 0 ]]; then return 0; fi
	fail "should get through, but status $STATUS: $*" 1
	_show
	return 1
}

# host_probe VERB ARGS...: probe as the lab's root, in throw-away namespaces, so that what it does harms nobody.
host_probe() {
	timeout -k 2 "$CALL_SECONDS" unshare --mount --net --pid --ipc --uts --fork --kill-child \
		--propagation private --mount-proc probe "$@"
}

# box_probe BOX VERB ARGS...: probe in a box, as its root. box_probe_user: as the box's default user.
box_probe() {
	local box=$1
	shift
	timeout -k 2 "$CALL_SECONDS" cubby exec --user root "$box" -- /bin/probe "$@"
}
box_probe_user() {
	local box=$1
	shift
	timeout -k 2 "$CALL_SECONDS" cubby exec "$box" -- /bin/probe "$@"
}

# as USER CMD...: as ann or bob, with their homes and without our directories in the environment (root mode only).
as() {
	local who=$1 id=20001
	shift
	[[ $who == bob ]] && id=20002
	timeout -k 2 "$CALL_SECONDS" env -u CUBBY_STATE_DIR -u CUBBY_RUN_DIR -u CUBBY_CONFIG HOME="$LAB/home-$who" \
		XDG_RUNTIME_DIR="$LAB/xdg-$who" USER="$who" setpriv --reuid=$id --regid=$id --clear-groups "$@"
}

# tiny_root: makes the directory TINY.
tiny_root() {
	[[ -d $TINY ]] || bash "$SRC/bench/tiny-root" "$TINY" "$BUILD"
}

# need_template tiny: the template, made from TINY; ends the file when that fails.
need_template() {
	tiny_root || { t "the tiny root file system is made"; fail "bench/tiny-root failed"; exit 0; }
	call cubby template create "$1" "dir:$TINY"
	[[ $STATUS == 0 ]] && return 0
	t "template $1 is made"
	fail "cubby template create $1 dir:$TINY: status $STATUS"
	_show
	exit 0
}

# field BOX JQ: of `cubby info --json BOX`.
field() { cubby info --json "$1" </dev/null | jq -r "$2"; }

# daemon_pids: of the lab's daemons; nobody else's can be seen from here.
daemon_pids() {
	local d
	for d in /proc/[0-9]*; do
		[[ $(cat "$d/comm" 2>/dev/null) == cubbyd ]] && echo "${d#/proc/}"
	done
	return 0
}

# daemon_stop [SIGNAL]: end the daemon (TERM), and wait until it is gone. Its boxes go on.
# shellcheck disable=SC2120
daemon_stop() {
	local i pid pids
	pids=$(daemon_pids)
	for pid in $pids; do kill -s "${1-TERM}" "$pid" 2>/dev/null; done
	for ((i = 0; i < 500; i++)); do
		[[ -z $(daemon_pids) ]] && return 0
		sleep 0.01
	done
	return 1
}

# box_end: remove every box of the file's daemon, and end it. Called at the end of the file.
box_end() {
	local names
	command -v cubby >/dev/null || return 0
	[[ -S $CUBBY_RUN_DIR/cubbyd.sock ]] || return 0
	names=$(timeout 20 cubby ls --names </dev/null 2>/dev/null) || names=''
	if [[ -n $names ]]; then
		# shellcheck disable=SC2086
		timeout 60 cubby rm --force $names </dev/null >/dev/null 2>&1
	fi
	daemon_stop
}

_at_exit() {
	local status=$?
	_close_case
	box_end
	exit "$status"
}
trap _at_exit EXIT
exec </dev/null
