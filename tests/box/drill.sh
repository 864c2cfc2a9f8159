#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Names of the library:
# shellcheck disable=SC2154,SC2034
# the drill: claims that are proven, defences that are missed when they are gone, nothing changed on the host
# modes: root user userns
# seconds: 150
. "${TEST_LIB:?}/box.bash"
. "${TEST_LIB:?}/isolation.bash"
need_template tiny
CALL_SECONDS=60
mk b

# What may not change: mounts, processes but the daemon's own, groups, segments, names, the files of the places where things are made.
host_state() {
	cat /proc/self/mountinfo
	for p in /proc/[0-9]*; do
		case $(cat "$p/comm" 2>/dev/null) in cubby | cubby-probe | probe) echo "$p" ;; esac
	done
	[[ $LAB_AS == user ]] || find /sys/fs/cgroup -mindepth 1 -maxdepth 4 -type d ! -path '*/cubby-*' 2>/dev/null | LC_ALL=C sort
	cat /proc/sysvipc/shm /proc/net/unix | grep -c .
	hostname
	find "${TMPDIR:-/tmp}" /run /etc -xdev -path "$CUBBY_STATE_DIR" -prune -o -path "$CUBBY_RUN_DIR" -prune -o -path "$LAB/work" -prune -o -print 2>/dev/null |
		LC_ALL=C sort
}
same_host() { host_state >"$LAB/work/after"; diff "$LAB/work/before" "$LAB/work/after"; }
boxes_left() { find "$CUBBY_STATE_DIR/run" "$CUBBY_RUN_DIR/boxes" -mindepth 1 -maxdepth 1 | wc -l; }
quiet() { [[ $(boxes_left) == "$1" ]]; }
ask_raw() {	# ask_raw JSON: one request, one answer; the connection ends then
	timeout 20 python3 - "$CUBBY_RUN_DIR/cubbyd.sock" "$1" <<-'END'
		import socket, struct, sys
		s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]); b = sys.argv[2].encode()
		s.sendall(struct.pack("<I", len(b)) + b)
		def read(n):
		    d = b""
		    while len(d) < n:
		        k = s.recv(n - len(d))
		        if not k: break
		        d += k
		    return d
		print(read(struct.unpack("<I", read(4))[0]).decode())
	END
}

t "nothing is open that should not be, and the status says what is not proven"
# An ordinary user can't show of everything that it would work outside, and has no limits here.
call cubby doctor	# it starts the gateway, which has a socket
host_state >"$LAB/work/before"
call cubby drill --json b
json=$OUT
case $LAB_AS in
root) want "$STATUS" = 0 ;;
userns) want "$STATUS" = 3 ;;
user) want "$STATUS" = 1 ;;
esac
want "$(jq -r .exit <<<"$json")" = "$STATUS"
open=$(jq -r '[.rows[]|select(.verdict=="open").id]|join(" ")' <<<"$json")
if [[ $LAB_AS == user ]]; then
	want "$open" = 'memory memory-files processes processor'
else
	want "$open" = ''
fi
want "$(jq -r '.proven + .open + .not_proven + .absent' <<<"$json")" = "$(jq -r '.rows|length' <<<"$json")"
want "$(jq -r .proven <<<"$json")" -ge 30
# What is proven has something that got through beside it.
want "$(jq -r '[.rows[]|select(.verdict=="proven" and (.control|startswith("through")|not))]|length' <<<"$json")" = 0
want "$(jq -r .ms <<<"$json")" -lt 20000

t "nothing is changed on the host, and no box is left"
want_soon 10 quiet 1
want_soon 5 same_host
want_out '^b$' cubby ls --names

t "the table names each claim once, in words, and ends with the sum"
call cubby drill b
cp "$_out" "$LAB/work/table"
want "$(grep -cE '^(ok|OPEN|not proven|absent) ' "$LAB/work/table")" = "$(jq -r '.rows|length' <<<"$json")"
want_out . grep -E '^[0-9]+ of [0-9]+ claims proven.*Template tiny, network none' "$LAB/work/table"

t "each claim stands in SECURITY.md, and nothing there points to one that isn't"
for id in $(jq -r '.rows[].id' <<<"$json"); do want_out . grep -F "\`$id\`" "$SRC/SECURITY.md"; done
for id in $(sed -n '/^## The claims/,/^## /p' "$SRC/SECURITY.md" | sed -n 's/^| `\([a-z0-9_-]*\)` .*/\1/p'); do
	want_out . grep -E "^CLAIM\(\"$id\"" "$SRC/src/drill/claims.def"
done

t "every defence that is taken away is missed"
call cubby drill --json --self-test b
self=$OUT
want "$(jq -r '[.self_test[]|select(.state=="missed")]|length' <<<"$self")" = 0
want "$(jq -r .missed <<<"$self")" = 0
case $LAB_AS in
root) untried='' ;;
userns) untried='cgroups' ;;
user) untried='ids memory pids cpu' ;;
esac
for word in filter capabilities no-nesting ids masks processes devices root propagation net ipc host-name cgroups memory pids cpu; do
	state=$(jq -r --arg w "$word" '.self_test[]|select(.without==[$w]).state' <<<"$self")
	if [[ " $untried " == *" $word "* ]]; then
		want "$word $state" = "$word not-tried"
	elif [[ $LAB_AS == userns && $word == ids ]]; then
		want "$state" != missed
	else
		want "$word $state" = "$word noticed"
	fi
done
want_soon 10 quiet 1
want_soon 5 same_host

t "a box without a defence is thrown away, soon, marked, and nobody else's to ask for"
call ask_raw '{"v":1,"op":"new","run":true,"template":"tiny","net":"none","allow_weaker":true,"weaken":["filter"]}'
want "$(jq -r .ok <<<"$OUT")" = true
want "$(jq -r '.box.expires - .box.created' <<<"$OUT")" -le 60
call ask_raw '{"v":1,"op":"new","run":true,"template":"tiny","net":"none","allow_weaker":true,"weaken":["filter"],"ttl_ms":3600000}'
want "$(jq -r '.box.expires - .box.created' <<<"$OUT")" -le 60
for bad in '"weaken":["filter"]' '"run":true,"weaken":["walls"]' '"run":true,"weaken":"filter"' '"run":true,"weaken":[1]'; do
	call ask_raw '{"v":1,"op":"new","template":"tiny","net":"none","allow_weaker":true,'"$bad"'}'
	want "$bad $(jq -r .why <<<"$OUT")" = "$bad bad-request"
done
call ask_raw '{"v":1,"op":"new","template":"tiny","net":"none","run":true,"allow_weaker":true,"weaken":[]}'
want "$(jq -r .ok <<<"$OUT")" = true
want_soon 10 quiet 1

t "the result is kept, for its user, engine, template and network, and shown"
want_out 'Last drill: .* claims proven' cubby doctor
want_out 'last drill: .* claims proven' cubby info b
want "$(field b .drill.proven)" = "$(jq -r .proven <<<"$self")"
want "$(field b .drill.template)" = tiny
call cubby template create other "dir:$TINY"
# shellcheck disable=SC2086
want_status 0 cubby new --quiet --template other --net none $WEAK o
want "$(field o .drill)" = null
want "$(find "$CUBBY_STATE_DIR/drill" -type f | wc -l)" = 1
want "$(stat -c %a "$CUBBY_STATE_DIR/drill" "$CUBBY_STATE_DIR"/drill/* | tr '\n' ' ')" = '700 600 '
want_status 0 cubby rm --force o
for bad in '{}' '{"time":1,"proven":-1,"open":0,"not_proven":0}' '[]' '"x"'; do
	call ask_raw '{"v":1,"op":"drill-done","result":'"$bad"'}'
	want "$(jq -r .why <<<"$OUT")" = bad-request
done

t "a drill that is ended, or killed, takes everything with it"
for sig in INT KILL; do
	cubby drill --self-test b >/dev/null 2>&1 &
	drill=$!
	want_soon 10 sh -c 'test "$(ls "$1" | wc -l)" -ge 2' sh "$CUBBY_RUN_DIR/boxes"
	kill -$sig $drill
	wait $drill
	want_soon 15 quiet 1
	want_soon 5 sh -c '! ls -d "${TMPDIR:-/tmp}"/cubby-drill-* 2>/dev/null'
done
want_soon 5 same_host

t "what is asked wrong is told"
want_err 2 'not a name' cubby drill 'B!'
want_err 1 'no box' cubby drill nosuch
want_err 2 'one too many' cubby drill b c

if [[ $LAB_AS == root ]]; then
	t "an ordinary user drills through the system's daemon, can't weaken a box, and sees his own results only"
	printf 'grants = ann\npool_size = 0\n' >"$CUBBY_CONFIG"
	cubby config --stop-daemon >/dev/null
	sys() { as ann env CUBBY_RUN_DIR="$CUBBY_RUN_DIR" "$@"; }
	want_status 0 cubby ls
	call sys cubby drill --template tiny --json
	want "$STATUS" = 3
	want "$(jq -r .open <<<"$OUT")" = 0
	want_err 1 "owner" sys cubby drill --template tiny --self-test
	want_out 'Last drill: .* claims proven' sys cubby doctor
	want "$(field b .drill.not_proven)" = 0
	want "$(find "$CUBBY_STATE_DIR/drill" -type f | wc -l)" = 2
	want_soon 10 quiet 1
fi
