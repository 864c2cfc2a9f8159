# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
#
# What is left that nobody owns? Sourced by tests/box files after box.bash. It looks at everything that boxes are made of:
# processes, mounts, cgroups, sockets, directories, rows of the database, and compares with the list of the boxes.

# Boxes of a pool are nobody's in the list: without one every box is somebody's.
[[ -w $LAB ]] || export CUBBY_CONFIG=$LAB/work/cubby.conf
echo 'pool_size = 0' >"$CUBBY_CONFIG"
_mounts=$(sort /proc/self/mountinfo)

# left: prints what is there and shouldn't be; status 0 when there is nothing. Asks the daemon, and so starts one.
left() {
	local all known=' ' alive=' ' pids=' ' id state pid bad=0 f c
	all=$(timeout 20 cubby ls --all --json </dev/null) || { echo "ls failed: $all"; return 1; }
	while read -r id state pid; do
		[[ -n $id ]] || continue
		known+="$id "
		[[ $state == running || $state == paused ]] && alive+="$id " pids+="$pid "
		[[ $state == running || $state == paused || $state == stopped ]] || { echo "box $id is $state"; bad=1; }
	done < <(jq -r '.[]|"\(.id) \(.state) \(.pid // "-")"' <<<"$all")
	for f in "$CUBBY_STATE_DIR"/boxes/* "$CUBBY_STATE_DIR"/run/*; do
		[[ ! -e $f || $known == *" ${f##*/} "* ]] || { echo "directory $f"; bad=1; }
	done
	for f in "$CUBBY_STATE_DIR"/building/*; do
		[[ ! -e $f ]] || { echo "directory $f"; bad=1; }
	done
	for f in "$CUBBY_RUN_DIR"/boxes/*; do
		[[ ! -e $f || $alive == *" ${f##*/} "* ]] || { echo "directory $f"; bad=1; }
	done
	for f in "$CUBBY_RUN_DIR"/*; do
		case ${f##*/} in
		cubbyd.sock | cubbyd.lock | boxes | cgroups | '*') ;;
		*) echo "file $f"; bad=1 ;;
		esac
	done
	for c in /sys/fs/cgroup/cubby-*/* /sys/fs/cgroup/*/cubby-*/* /sys/fs/cgroup/*/*/cubby-*/*; do
		[[ -d $c ]] || continue
		[[ ${c##*/} == daemon || $alive == *" ${c##*/} "* ]] || { echo "cgroup $c"; bad=1; }
	done
	for f in /proc/[0-9]*/status; do
		_one_process "${f//[!0-9]/}" || bad=1
	done
	for id in $alive; do
		[[ -S $CUBBY_RUN_DIR/boxes/$id/init.sock ]] || { echo "box $id has no socket"; bad=1; }
	done
	for pid in $pids; do
		[[ -d /proc/$pid ]] || { echo "process $pid of a running box is gone"; bad=1; }
	done
	c=$(sort /proc/self/mountinfo | comm -13 <(echo "$_mounts") -)
	[[ -z $c ]] || { echo "mount $c"; bad=1; }
	return $bad
}
# Is this one of a box that isn't alive? (A first process of a box, before or after it becomes cubby-init, has its own pid namespace.)
_one_process() {
	local -a w
	local ns=0 inside=0 stat=''
	while read -ra w; do
		case ${w[0]-} in
		NSpid:) ns=${#w[@]} inside=${w[2]-} ;;
		State:) stat=${w[1]} ;;
		esac
	done 2>/dev/null <"/proc/$1/status"
	((ns == 3)) || return 0
	[[ $stat == Z ]] && { echo "zombie $1"; return 1; }
	# PID 1 of a box has to be one that the list names; what is below it ends with it.
	[[ $inside != 1 || $pids == *" $1 "* ]] && return 0
	echo "process $1 $(tr '\0' ' ' <"/proc/$1/cmdline" 2>/dev/null)"
	return 1
}

# left_rows: the same for the database; it has to be closed for that, so the daemon is ended first.
left_rows() {
	local rows
	daemon_stop || { echo "the daemon does not end"; return 1; }
	rows=$(sqlite3 "$CUBBY_STATE_DIR/cubby.db" "SELECT 'journal',id,op FROM journal UNION ALL SELECT 'box',id,state FROM boxes
		WHERE state NOT IN ('running','paused','stopped') UNION ALL SELECT 'box',id,'twice' FROM boxes GROUP BY owner,name HAVING count(*)>1")
	[[ -z $rows ]] || { echo "$rows"; return 1; }
	[[ $(sqlite3 "$CUBBY_STATE_DIR/cubby.db" 'PRAGMA integrity_check') == ok ]]
}
