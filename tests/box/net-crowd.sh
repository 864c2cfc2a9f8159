#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# shellcheck disable=SC2154
# one box's floods and another's network; ports that are shown; boxes that come and go; the host's own firewall
# modes: root userns
# seconds: 240
. "${TEST_LIB:?}/box.bash"
. "${TEST_LIB:?}/netlab.bash"
netlab_up
netlab_host
netlab_template net curl

DIAL=$TEST_LIB/netdial.py
hold() {	# hold BOX-PID N ADDRESS PORT FILE: N connections until release
	mkfifo "$5.life"
	exec 7<>"$5.life"
	nsenter --net="/proc/$1/ns/net" -- /usr/bin/python3 "$DIAL" hold "$2" "$3" "$4" "$5" <"$5.life" >"$5.err" 2>&1 7>&- 9>&- &
	holder=$!
}
release() { exec 7>&-; wait "$holder"; }
get() { in_net "$1" curl -sS --max-time 5 http://www.example.com/; }
plugs() {	# the boxes' interfaces in the gateway namespace
	local pid fd
	for pid in $(daemon_pids); do
		for fd in "/proc/$pid/fd"/*; do
			[[ $(readlink "$fd") == net:* ]] || continue
			nsenter --net="$fd" -- ip -br link 2>/dev/null | grep -q '^go0' || continue
			nsenter --net="$fd" -- ip -br link | grep -c '^b[0-9]'
			return
		done
	done
}

t "a box has so many connections to the resolver, and no more; others have theirs"
fresh d --net internet
fresh e --net internet
hold "$(field d .pid)" 60 198.18.0.1 53 "$LAB/work/dns"
want_soon 8 grep -qx 'made 32' "$LAB/work/dns"
want_out '^hello from inet' get e
release
want_soon 5 in_net d curl -sS --max-time 2 http://www.example.com/
want_status 0 cubby rm --force d e

t "with thousands of half-open connections of one box, another one connects"
fresh b --net internet
fresh c --net internet
b=$(field b .pid)
want_out '^hello from inet' get c
hold "$b" 4000 203.0.113.66 81 "$LAB/work/half"
for i in 1 2 3 4 5 6 7 8 9 10; do want_out '^hello from inet' get c; done
want_soon 8 grep -q '^made 0$' "$LAB/work/half"
release

t "who holds all the connections that it may have is refused the next one, and another box isn't"
fresh d --net internet --connections 50
d=$(field d .pid)
hold "$d" 80 203.0.113.10 7 "$LAB/work/long"
want_soon 8 grep -q '^made 50$' "$LAB/work/long"
call get d
want "$STATUS" != 0
want_out '^hello from inet' get c
want_soon 5 sh -c "cubby net log d | grep -q 'as many connections as it may have'"
release
want_soon 5 in_net d curl -sS --max-time 5 http://203.0.113.10/
want_status 0 cubby rm --force d

t "while a box sends small datagrams as fast as it can, the host and another box are answered"
at "$b" /usr/bin/python3 "$DIAL" flood 203.0.113.10 7 4 >"$LAB/work/flood" 2>&1 &
flooder=$!
for i in 1 2 3 4 5 6 7 8 9 10; do
	want_out '^hello from inet' in_net c curl -sS --max-time 5 http://203.0.113.10/
	want_out '^hello from inet' curl -sS --max-time 5 http://www.example.com/
done
# A question can be lost in the flood, as on any busy network; one of the next is answered.
want_soon 5 in_net c curl -sS --max-time 1 http://www.example.com/
wait "$flooder"
want "$(cat "$LAB/work/flood")" -gt 1000
want_out '^hello from inet' get b

t "a shown port, and the box itself, are out of reach of the host's neighbours and of other boxes, whatever packet they make"
in_net b sh -c 'while true; do echo "HTTP/1.0 200 OK

from b" | nc -l -p 3000 >/dev/null; done' >/dev/null 2>&1 &
want_soon 5 in_net b sh -c 'cat /proc/net/tcp /proc/net/tcp6 | grep -q :0BB8'
want_out '3000 +127.0.0.1:13000' cubby expose b 3000:13000
want_out 'from b' curl -sS --max-time 5 http://127.0.0.1:13000/
v4=$(field b '.address[]' | grep '[.]')
v6=$(field b '.address[]' | grep :)
in_lan ip route add 198.18.0.0/15 via 10.77.0.1
in_lan ip -6 route add fd63:7562:6279::/48 via fd77::1
in_lan sysctl -qw net.ipv4.conf.all.route_localnet=1 net.ipv4.conf.in0.route_localnet=1
in_lan ip route add 127.0.0.64/32 via 10.77.0.1 2>/dev/null
nsenter --net="/proc/$b/ns/net" -- /usr/bin/python3 "$TEST_LIB/netraw.py" watch "$LAB/work/seen" <"$NETLAB/life" >/dev/null 2>&1 9>&- &
NETLAB_PIDS+=($!)
want_soon 5 test -e "$LAB/work/seen.ready"
sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1	# the host may even forward
call at "$NETLAB_LAN" /usr/bin/python3 "$DIAL" dial 13000 10.77.0.1 192.0.2.2 fd77::1 127.0.0.64
want "$(grep -c ' ok$' <<<"$OUT")" = 0
call at "$NETLAB_LAN" /usr/bin/python3 "$DIAL" dial 3000 "$v4" "$v6"
want "$(grep -c ' ok$' <<<"$OUT")" = 0
mac=$(ip -br link show lan0 | awk '{ print $3 }')
# To the host's hardware address, for its loopback and for the box: as a router on the same wire would.
for to in 127.0.0.1:13000 "$v4:3000"; do
	want_status 0 at "$NETLAB_LAN" /usr/bin/python3 - "$TEST_LIB" "$mac" "${to%:*}" "${to##*:}" <<-'PY'
		import socket, struct, sys
		mac, to, port = bytes.fromhex(sys.argv[2].replace(":", "")), sys.argv[3], int(sys.argv[4])
		s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
		s.bind(("in0", 0))
		def total(d):
		    n = sum(struct.unpack(f">{len(d) // 2}H", d))
		    n = (n >> 16) + (n & 0xffff)
		    return ~(n + (n >> 16)) & 0xffff
		a, z = socket.inet_aton("10.77.0.2"), socket.inet_aton(to)
		t = struct.pack(">HHIIBBHHH", 41000, port, 1, 0, 0x50, 2, 65535, 0, 0)
		t = t[:16] + struct.pack(">H", total(a + z + struct.pack(">HH", 6, len(t)) + t)) + t[18:]
		h = struct.pack(">BBHHHBBH4s4s", 0x45, 0, 40, 1, 0, 64, 6, 0, a, z)
		s.send(mac + mac + b"\x08\0" + h[:10] + struct.pack(">H", total(h)) + h[12:] + t)
	PY
done
call in_net c curl -sS --max-time 2 http://127.0.0.1:13000/
want "$STATUS" = 7
for to in 198.18.0.1:13000 192.0.2.2:13000 "$v4:3000" "[$v6]:3000" "[::ffff:$v4]:3000"; do
	call in_net c curl -sS -g --max-time 2 "http://$to/"
	want "$to $STATUS" != "$to 0"
done
want "$(cat "$LAB/work/seen")" = ''
want_out 'from b' curl -sS --max-time 5 http://127.0.0.1:13000/
want_soon 5 grep -q ' 0800 6 127.0.0.1 127.0.0.1' "$LAB/work/seen"
sysctl -qw net.ipv4.ip_forward=0 net.ipv6.conf.all.forwarding=0

t "under a host's firewall that lets nothing in and forwards nothing, boxes have their network and are as separate"
if ! command -v nft >/dev/null; then
	skip "nft isn't installed"
else
	printf '%s\n' 'table inet fw {
		chain in { type filter hook input priority 0; policy drop; ct state established,related accept; iif lo accept; meta l4proto icmpv6 accept; }
		chain forward { type filter hook forward priority 0; policy drop; }
		chain out { type filter hook output priority 0; policy accept; }
	}' >"$LAB/work/fw"
	want_status 0 nft -f "$LAB/work/fw"
	call at "$NETLAB_LAN" /usr/bin/python3 "$DIAL" dial 8080 10.77.0.1
	want "$OUT" = '10.77.0.1 silent'
	want_out '^hello from inet' get c
	want_out '^hello from inet' in_net c curl -sS -g --max-time 5 'http://[2001:db8::10]/'
	want_out 'from b' curl -sS --max-time 5 http://127.0.0.1:13000/
	fresh f --net internet
	want_out '^hello from inet' get f
	call in_net f curl -sS --max-time 2 "http://$v4:3000/"
	want "$STATUS" != 0
	want_status 0 cubby rm --force f
	want_status 0 nft delete table inet fw
fi

t "two hundred boxes come and go, under one name and with addresses that others had: each has its own rules only"
want_status 0 cubby rm --force b c
before=$(gateway)
: >"$LAB/work/churn"
for ((i = 0; i < 100; i++)); do
	cubby run --template net --net internet -- curl -sS --max-time 5 "http://203.0.113.10/open$i" >>"$LAB/work/churn" 2>&1 </dev/null
	cubby run --template net --net api.example.com -- curl -sS --max-time 5 "http://203.0.113.10/closed$i" >>"$LAB/work/churn" 2>&1 </dev/null
done
want "$(grep -c '^hello from inet 203.0.113.10 /open' "$LAB/work/churn")" = 100
want "$(grep -c '/closed' "$LAB/work/churn")" = 0
want "$(grep -ci "connect to 203.0.113.10 port 80" "$LAB/work/churn")" = 100
if netlab_seen inet '/closed'; then fail "a box had what another one may"; fi
for ((i = 0; i < 10; i++)); do
	fresh same --net internet
	want_out '^hello from inet' get same
	# One that is open at the end of the box.
	nsenter --net="/proc/$(field same .pid)/ns/net" -- /usr/bin/python3 "$DIAL" hold 1 203.0.113.10 7 "$LAB/work/one.$i" <"$NETLAB/life" >/dev/null 2>&1 9>&- &
	NETLAB_PIDS+=($!)
	want_soon 5 netlab_seen inet 'tcp 203.0.113.10 7 '
	want_status 0 cubby rm --force same
	netlab_clear
	fresh same --net api.example.com
	call get same
	want "$STATUS" != 0
	want_out '"totals"|"refused"|[[]' cubby net log --json same
	want_status 0 cubby rm --force same
done
want "$(gateway)" = "$before"

t "of boxes that are gone nothing is left in the gateway"
want -n "$before"
fresh last --net internet
want_out '^hello from inet' get last
want_soon 10 sh -c "[ \"\$(ls /proc/$before/fd | wc -l)\" -lt 100 ]"
mine=$(plugs)
want -n "$mine"
want "$mine" -ge 1
# One for the box, and those that are made in advance: of two hundred that came and went none.
want "$mine" -lt 64
