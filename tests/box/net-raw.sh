#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# shellcheck disable=SC2154
# frames that a box's own root can't make, sent from its network namespace by somebody stronger: none gets anywhere
# modes: root userns
# seconds: 120
. "${TEST_LIB:?}/box.bash"
. "${TEST_LIB:?}/netlab.bash"
netlab_up
netlab_host
netlab_template net curl

RAW=$TEST_LIB/netraw.py
WATCHED=$LAB/work/watched
mkdir "$WATCHED"
raw_in() {	# raw_in PID ARGS...: netraw.py in the network namespace of that process
	local pid=$1
	shift
	timeout -k 2 20 nsenter --net="/proc/$pid/ns/net" -- /usr/bin/python3 "$RAW" "$@"
}
watch() {	# watch NAME PID: what passes there goes to $WATCHED/NAME
	local i
	nsenter --net="/proc/$2/ns/net" -- /usr/bin/python3 "$RAW" watch "$WATCHED/$1" <"$NETLAB/life" >/dev/null 2>"$WATCHED/$1.err" 9>&- &
	NETLAB_PIDS+=($!)
	for ((i = 0; i < 500; i++)); do
		[[ -e $WATCHED/$1.ready ]] && return 0
		sleep 0.01
	done
	return 1
}
saw() { grep -qE -- "$2" "$WATCHED/$1"; }
forget() { local f; for f in "$WATCHED"/*; do [[ $f == *.@(ready|err) ]] || : >"$f"; done; }
tables() {	# of the host and of a namespace: who is where, and which way
	local pid
	for pid in $$ "$c"; do
		nsenter --net="/proc/$pid/ns/net" -- sh -c 'ip -4 route; ip -6 route; ip rule; ip -br addr; ip neigh | sed "s/ [A-Z]*$//" | sort' | grep -v '^192.0.2.1 \|^2001:db8:1::1 \|^10.77.0.2 \|^fd77::2 \|^fe80'
	done
}
# Frames of a kind that arrived at all: one line each.
came() { awk '$1 != "-" { print $1 }' "$WATCHED/$1" | sort -u | tr '\n' ' '; }

want_status 0 cubby new --quiet --template net --net internet b
want_status 0 cubby new --quiet --template net --net internet c
b=$(field b .pid) c=$(field c .pid)
addresses=()
for box in b c; do
	for want in '[.]' :; do addresses+=("$(field "$box" '.address[]' | grep "$want")"); done
done
addrs=("${addresses[0]}" "${addresses[2]}" "${addresses[1]}" "${addresses[3]}")	# own4 peer4 own6 peer6

t "through a plain pair of interfaces every one of these frames arrives"
want_status 0 ip link add plain0 address 02:63:75:62:62:79 type veth peer name plain1 netns "$NETLAB_LAN"
ip link set plain0 up
in_lan ip link set plain1 up
want_status 0 watch plain "$NETLAB_LAN"
want_soon 5 sh -c 'ip -br link show plain0 | grep -q " UP "'
want_out '^[1-9][0-9]+$' raw_in $$ send plain0 "${addrs[@]}" all
mapfile -t kinds < <(/usr/bin/python3 "$RAW" kinds | grep -v '^good-')
want "${#kinds[@]}" -gt 50
for kind in "${kinds[@]}"; do want_soon 5 saw plain "^$kind IN "; done
ip link del plain0

t "of the host's side, of another box and of other machines is seen what a box may send"
want_status 0 watch peer "$c"
want_status 0 watch host $$
want_status 0 watch inet "$NETLAB_INET"
want_status 0 watch lan "$NETLAB_LAN"
want_out '^hello from inet' timeout 10 cubby exec c -- curl -sS --max-time 5 http://www.example.com/
want_soon 5 saw peer '^- IN 0800 6 203.0.113.10 '
want_out '^2$' raw_in "$b" send eth0 "${addrs[@]}" good-udp4 good-udp6
want_soon 5 saw inet '^good-udp4 IN 0800 17 192.0.2.2 203.0.113.10$'
want_soon 5 saw inet '^good-udp6 IN 86dd 17 2001:db8:1::2 2001:db8::10$'
want_out '^hello from lan' curl -sS --max-time 5 http://10.77.0.2/
want_soon 5 saw lan '^- IN 0800 6 10.77.0.1 10.77.0.2$'

t "none of the others is seen anywhere but in the box itself, and no table changes"
netlab_clear
before=$(tables)
gateway_before=$(gateway)
forget
want_out '^[1-9][0-9]+$' raw_in "$b" send eth0 "${addrs[@]}" all
# What is sent last has arrived: what was sent before has, too, or never will.
want_out '^1$' raw_in "$b" send eth0 "${addrs[@]}" good-udp4
want_soon 5 saw inet '^good-udp4 IN '
want "$(came peer)" = ''
want "$(came lan)" = ''
want "$(came host | sed 's/good-udp4 //')" = ''
want "$(came inet | sed 's/good-udp4 //')" = ''
want "$(tables)" = "$before"
if netlab_seen host . || netlab_seen lan .; then fail "a server of the host or its network was reached"; fi

t "to another box goes no frame at all, whatever was sent"
want "$(grep -c . "$WATCHED/peer")" = 0

t "only TCP, UDP and echoes leave the host, from its own addresses, without options"
want "$(awk '$2 == "IN" && $3 == "0800" && ($4 !~ /^(6|17|1)$/ || $5 != "192.0.2.2" && $5 !~ /^203[.]0[.]113[.]/ && $5 != "192.0.2.1" || /options/)' "$WATCHED/inet")" = ''

t "five thousand hardware addresses are nobody's trouble"
forget
want_out '^5000$' raw_in "$b" macs eth0 5000
want "$(came peer)$(came host)$(came inet)" = ''
want_out '^hello from inet' timeout 10 cubby exec c -- curl -sS --max-time 5 http://www.example.com/

t "after all of that both boxes have their network, through the same gateway"
want "$(gateway)" = "$gateway_before"
for box in b c; do want_out '^hello from inet' timeout 10 cubby exec "$box" -- curl -sS --max-time 5 http://www.example.com/; done

t "with another address, route, hardware address, or a bridge of its own, a box is nobody, and then itself again"
forget
in_b() { nsenter --net="/proc/$b/ns/net" -- "$@"; }
get() { timeout 10 cubby exec b -- curl -sS --max-time 2 http://203.0.113.10/; }
want_out '^hello from inet' get
want_status 0 in_b ip addr add "${addrs[1]}/32" dev eth0
for src in "${addrs[1]}" 192.0.2.2 10.77.0.2; do
	in_b ip addr add "$src/32" dev eth0 2>/dev/null
	call timeout 10 cubby exec b -- curl -sS --max-time 2 --interface "$src" http://203.0.113.10/
	want "$src $STATUS" != "$src 0"
	want_status 0 in_b ip addr del "$src/32" dev eth0
done
want_out '^hello from inet' get
want_status 0 in_b ip link set eth0 promisc on
want_status 0 in_b ip link set eth0 address 02:00:00:00:00:99
call get
want_status 0 in_b ip link set eth0 address 02:63:75:62:62:79
want_out '^hello from inet' get
want_status 0 in_b ip link add br9 type bridge
want_status 0 in_b ip link set eth0 master br9
want_status 0 in_b ip link set br9 up
want_out '^1$' raw_in "$b" send br9 "${addrs[@]}" peer-udp4-all
want_status 0 in_b ip link set eth0 nomaster
want_status 0 in_b ip link del br9
want_out '^hello from inet' get
want "$(came peer)" = ''
want "$(grep -c . "$WATCHED/peer")" = 0
