# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
#
# For tests/box/{fs,proc,krn,run}*.sh, after box.bash: boxes, and probes in pairs.
#
#	mk b				a box of the template tiny; mk b --nesting …: options of `cubby new`
#	pair b open-write /proc/sys/kernel/core_pattern
#
# `pair BOX VERB ARGS...`: refused in the box to its root and to its user; and the control, the same probe outside. Outside
# means throw-away namespaces, for an ordinary user below a user namespace of its own. What is refused there as well (an
# ordinary user has few rights, and a kernel doesn't have everything) proves nothing: it is counted, and a case in which no
# probe has a control fails for lack of an `allowed`, unless it gives one of its own.
# `lacks BOX VERB ARGS...`: as pair, for what this kernel may not have at all.

WEAK=''
[[ $LAB_AS == user ]] && WEAK=--allow-weaker	# nothing is delegated to ann, so there are no limits

mk() {
	local name=$1
	shift
	# shellcheck disable=SC2086
	timeout -k 2 "$CALL_SECONDS" cubby new --quiet --template tiny --net none $WEAK "$@" "$name" >/dev/null 2>"$LAB/work/.mk" && return 0
	fail "box $name isn't made: $(head -c 300 "$LAB/work/.mk")" 1
	return 1
}

# once ARGS...: `cubby run` of the template tiny.
once() {
	# shellcheck disable=SC2086
	timeout -k 2 "$CALL_SECONDS" cubby run --template tiny --net none $WEAK "$@"
}

# outside VERB ARGS...: the control of a probe.
outside() {
	if [[ $LAB_AS == user ]]; then
		timeout -k 2 "$CALL_SECONDS" unshare --user --map-root-user --mount --net --pid --ipc --uts --fork --kill-child \
			--propagation private --mount-proc probe "$@"
	else
		host_probe "$@"
	fi
}

in_box() {	# in_box BOX CMD...: as its root
	local box=$1
	shift
	timeout -k 2 "$CALL_SECONDS" cubby exec --user root "$box" -- "$@"
}

in_box_user() {	# in_box_user BOX CMD...: as its ordinary user
	local box=$1
	shift
	timeout -k 2 "$CALL_SECONDS" cubby exec --user agent "$box" -- "$@"
}

_control() {	# 0: the probe gets through outside
	call outside "$@"
	if [[ $STATUS == 0 ]]; then
		((_checks++, _allowed++))
		return 0
	fi
	[[ $STATUS == 1 && $OUT == *refused* ]] || fail "the control neither gets through nor is refused, status $STATUS: $*" 2
	return 1
}

pair() {
	local box=$1
	shift
	if ! _control "$@" && [[ $LAB_AS == root ]]; then
		fail "refused outside as well, so nothing is proved: $* ($OUT)" 1
	fi
	blocked box_probe "$box" "$@"
	blocked box_probe_user "$box" "$@"
}

lacks() {
	local box=$1
	shift
	_control "$@" || :
	blocked box_probe "$box" "$@"
	blocked box_probe_user "$box" "$@"
}

hex() { printf '%s' "$1" | od -An -tx1 | tr -d ' \n'; }

# sums DIR...: of every file, link and name below.
sums() { find "$@" -printf '%p %y %m %U %l\n' -type f -exec sha256sum {} + 2>/dev/null | LC_ALL=C sort | sha256sum; }
