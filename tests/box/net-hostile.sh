#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# shellcheck disable=SC2154
# where a box wants to get in: reserved ranges, the host's addresses, other boxes' names, names that lead inside
# modes: root userns
# seconds: 150
. "${TEST_LIB:?}/box.bash"
. "${TEST_LIB:?}/netlab.bash"
netlab_up
netlab_host
netlab_template net curl dig

dial() { at "$1" /usr/bin/python3 "$TEST_LIB/netdial.py" dial "${@:2}"; }	# dial PID PORT ADDRESS...
lines() { grep -c "$1" <<<"$OUT"; }

# Every address of these ranges is the LAN's: its machine answers on port 81 for all of them.
ranges='10.1.2.3/8 172.16.5.6/12 192.168.7.8/16 100.64.9.10/10 169.254.3.4/16 192.0.0.9/24 192.88.99.1/24 198.18.250.1/15 198.19.255.9/32
	240.1.2.3/4 100.100.100.200/32 168.63.129.16/32
	fc01::9/8 fd12::9/16 fec0::9/10 100::9/64 64:ff9b::a4d:2/96 64:ff9b:1::9/48 2002:a4d:2::1/16 2001::9/32 fd00:ec2::254/128'
addresses=()
for range in $ranges; do addresses+=("${range%/*}"); done
for addr in "${addresses[@]}"; do
	bits=32 via=10.77.0.2 ip=(ip)
	[[ $addr == *:* ]] && bits=128 via=fd77::2 ip=(ip -6)
	"${ip[@]}" route add "$addr/$bits" via $via dev lan0
	in_lan "${ip[@]}" route add local "$addr/$bits" dev lo
done
in_lan /usr/bin/python3 "$TEST_LIB/netdial.py" serve 81 "$NETLAB/any" <"$NETLAB/life" >"$NETLAB/any.log" 2>&1 9>&- &
NETLAB_PIDS+=($!)
want_ready() { want_soon 5 test -e "$NETLAB/any.ready"; }

t "reserved ranges, which the host has routes to, aren't reached: every one at once refused"
want_ready
fresh b --net internet
b=$(field b .pid)
call dial $$ 81 "${addresses[@]}"
want "$(lines ' ok$')" = "${#addresses[@]}"
want "$(wc -l <"$NETLAB/any")" = "${#addresses[@]}"
: >"$NETLAB/any"
call dial "$b" 81 "${addresses[@]}"
want "$(lines .)" = "${#addresses[@]}"
want "$(grep -E ' (ok|silent)$' <<<"$OUT")" = ''
want "$(cat "$NETLAB/any")" = ''
call dial "$b" 80 203.0.113.10 2001:db8::10
want "$(lines ' ok$')" = 2

t "an exception lifts what it names, and never what is the host's, a cloud's or a tunnel"
fresh l --net none --lan 10.0.0.0/8 --lan 172.16.0.0/12 --lan 192.168.0.0/16 --lan 100.64.0.0/10 --lan 169.254.0.0/16 --lan fc00::/7
l=$(field l .pid)
call dial "$l" 81 10.1.2.3 172.16.5.6 192.168.7.8 100.64.9.10 169.254.3.4 fc01::9 fd12::9
want "$(lines ' ok$')" = 7
: >"$NETLAB/any"
netlab_clear
call dial "$l" 81 100.100.100.200 168.63.129.16 fd00:ec2::254 198.19.255.9 240.1.2.3 64:ff9b::a4d:2 2002:a4d:2::1
want "$(grep -E ' (ok|silent)$' <<<"$OUT")" = ''
call dial "$l" 80 169.254.169.254 10.77.0.1 fd77::1 127.0.0.1 ::1
want "$(grep -E ' (ok|silent)$' <<<"$OUT")" = ''
want "$(cat "$NETLAB/any")" = ''
if netlab_seen lan 'tcp|http' || netlab_seen host 'tcp|http'; then fail "the host or the metadata service was reached"; fi
want_status 0 cubby rm --force l

t "the host isn't reached on any address that it has, nor on one that it gets while the box runs"
ip addr add 203.0.113.77/32 dev lan0
ip -6 addr add 2001:db8::77/128 dev lan0 nodad
mapfile -t mine < <(ip -o addr show scope global | awk '{ sub("/.*", "", $4); print $4 }'; echo 198.18.0.1; echo fd63:7562:6279::1)
want "${#mine[@]}" -ge 8
call dial $$ 8080 "${mine[@]}"
want "$(lines ' ok$')" = $((${#mine[@]} - 2))
netlab_clear
for port in 80 8080 443 22 7; do
	# A moment until the gateway has heard of the address.
	want_soon 3 sh -c "! nsenter --net=/proc/$b/ns/net -- /usr/bin/python3 '$TEST_LIB/netdial.py' dial $port 203.0.113.77 | grep -q ' ok'"
done
netlab_clear
for port in 80 8080 443 22 7; do
	call dial "$b" "$port" "${mine[@]}"
	want "$(grep -E ' (ok|silent)$' <<<"$OUT")" = ''
done
if netlab_seen host 'tcp|udp|http'; then fail "the host was reached: $(head -n 1 "$NETLAB/host.seen")"; fi
ip addr del 203.0.113.77/32 dev lan0
ip -6 addr del 2001:db8::77/128 dev lan0

t "a proxy that a program is told of is no way in"
netlab_clear
for proxy in 169.254.169.254:80 10.77.0.2:80 192.0.2.2:8080 198.18.0.1:8080; do
	call in_net b curl -sS --max-time 3 -x "http://$proxy" http://www.example.com/
	want "$proxy $STATUS" = "$proxy 7"
done
want_out '^hello from inet' in_net b curl -sS --max-time 3 -x http://203.0.113.10:80 http://www.example.com/
if netlab_seen lan 'tcp|http' || netlab_seen host 'tcp|http'; then fail "it was"; fi

t "echo requests are answered from outside and by nobody inside"
# Ping sockets are for groups that the host names: the gateway's is one of them.
sysctl -qw net.ipv4.ping_group_range='0 2147483647' 2>/dev/null || sysctl -qw net.ipv4.ping_group_range='0 199999'
fresh c --net internet
peer=$(field c '.address[]' | grep '[.]')
peer6=$(field c '.address[]' | grep :)
pings() { at "$1" /usr/bin/python3 "$TEST_LIB/netdial.py" ping "${@:2}"; }	# pings PID SIZE ADDRESS...
call pings "$b" 56 203.0.113.10 2001:db8::10
want "$(lines ' ok$')" = 2
call pings $$ 56 10.77.0.2 169.254.169.254 192.0.2.2 fd77::2
want "$(lines ' ok$')" = 4
call pings "$(field c .pid)" 56 "$peer" "$peer6"
want "$(lines ' ok$')" = 2
call pings "$b" 56 10.77.0.2 169.254.169.254 192.0.2.2 fd77::2 2001:db8:1::2 "$peer" "$peer6"
want "$(lines .)" = 7
want "$(grep ' ok$' <<<"$OUT")" = ''
# One that has to leave the host in pieces, and is answered so.
call pings "$b" 60000 203.0.113.10
want "$OUT" = '203.0.113.10 ok'
call pings "$b" 56 203.0.113.10
want "$OUT" = '203.0.113.10 ok'

t "the resolver tells nothing of other boxes, of the host's network, nor a whole zone"
netlab_name "secret.corp.internal A 300 10.77.0.2"
netlab_name "secret A 300 10.77.0.2"
netlab_name "printer.local A 300 10.77.0.2"
netlab_name "2.0.77.10.in-addr.arpa PTR 300 secret.corp.internal"
printf 'search corp.internal example.com\n' >>"$NETLAB/resolv.conf"
D='dig +short +time=2 +tries=1'
# shellcheck disable=SC2086 # $D is words
ask() { in_net b $D "$@"; }
want_out '^203.0.113.10$' ask www.example.com
want_out '^10.77.0.2$' $D @203.0.113.53 secret.corp.internal
netlab_clear
own=$(field b '.address[]' | grep '[.]')
for q in 'c A' 'c.cubby.internal A' 'c.local A' 'c AAAA' "-x $peer" '-x 10.77.0.2' '-x 192.0.2.2' 'secret A' 'secret.corp.internal A' 'printer.local A' \
	'_ssh._tcp.local PTR' 'www.example.com ANY' 'lan.example.com A' 'lan.example.com ANY' 'self.example.com A' 'loop.example.com A'; do
	# shellcheck disable=SC2086
	call ask $q
	want "$q: $(grep -v '^;' <<<"$OUT")" = "$q: "
done
call ask +tcp example.com AXFR
want "$(grep -v '^;' <<<"$OUT")" = ''
if netlab_seen inet 'dns (c|secret|printer|_ssh|[0-9.]*in-addr)'; then fail "asked outside: $(grep -E 'dns' "$NETLAB/inet.seen" | head -n 3)"; fi
want_out "$own" ask b

t "a name that leads inside, first or later, over an alias or in IPv6, leads nowhere"
netlab_name "turn.example.com A 0 203.0.113.10"
netlab_name "evil.example.com CNAME 0 lan.example.com"
netlab_name "six4.example.com AAAA 0 ::ffff:10.77.0.2"
netlab_name "nat64.example.com AAAA 0 64:ff9b::a4d:2"
netlab_name "ula.example.com AAAA 0 fd77::2"
want_out '^hello from inet turn.example.com' in_net b curl -sS --max-time 5 http://turn.example.com/
sed -i 's/^turn.example.com A 0 .*/turn.example.com A 0 10.77.0.2/' "$NETLAB/zone"
want_out '^10.77.0.2$' $D @203.0.113.53 turn.example.com
netlab_clear
for name in turn evil six4 nat64 ula meta loop self; do
	call in_net b curl -sS --max-time 3 "http://$name.example.com/"
	want "$name $OUT" != "$name hello from lan $name.example.com /"
	want_not_out '10[.]77|fd77|169[.]254|127[.]' ask "$name.example.com"
	want_not_out '10[.]77|fd77|ffff|64:ff9b' ask "$name.example.com" AAAA
done
if netlab_seen lan 'tcp|http' || netlab_seen host 'tcp|http'; then fail "it did"; fi

t "whichever server a box asks, it is the host's resolver that hears of it; under a list no other port 53, 853, no IPv6 either"
fresh n --net api.example.com
want_out '^203.0.113.11$' in_net n $D @203.0.113.10 api.example.com
want_out '^203.0.113.11$' in_net n $D +tcp @203.0.113.10 api.example.com
want_out '^203.0.113.11$' in_net n $D '@2001:db8::10' api.example.com
netlab_clear
call in_net n $D @203.0.113.10 data-out.example.com
want "$OUT" = ''
if netlab_seen inet 'data-out|203.0.113.1[01] 53|2001:db8::10 53'; then fail "the question left"; fi
n=$(field n .pid)
call dial "$n" 853 203.0.113.10 2001:db8::10
want "$(lines ' ECONNREFUSED$')" = 2
call dial "$n" 80 203.0.113.10 2001:db8::10
want "$(lines ' ECONNREFUSED$')" = 2
want_out '^hello from inet api' in_net n curl -sS --max-time 5 http://api.example.com/

t "data that is hidden in names goes out at a limited rate, and another box's questions are answered"
netlab_clear
call at "$b" /usr/bin/python3 "$TEST_LIB/netdial.py" ask 198.18.0.1 3000
want "$STATUS" = 0
took=$OUT
netlab_name 'fresh.example.com A 5 203.0.113.10'
want_out '^203.0.113.11$' in_net n $D +tries=2 api.example.com
want_out '^203.0.113.10$' in_net c $D +tries=2 fresh.example.com
heard=$(grep -c 'dns .*leak.example.com' "$NETLAB/inet.seen")
want "$heard" -gt 20
want "$heard" -le $((300 + 50 * (took / 1000 + 15)))

t "questions in one run over TCP are all answered"
cat >"$LAB/work/run.py" <<'END'
import socket
import struct

name = b"\3api\7example\3com\0"
s = socket.create_connection(("198.18.0.1", 53), 10)


def ask(n):
    s.sendall(b"".join(struct.pack(">H", 16 + len(name)) + struct.pack(">HHHHHH", i, 0x100, 1, 0, 0, 0) + name + b"\0\1\0\1" for i in range(n)))


def answers(n):
    got = b""
    for i in range(n):
        while len(got) < 2 or len(got) < 2 + struct.unpack(">H", got[:2])[0]:
            more = s.recv(65536)
            if not more:
                return i
            got += more
        got = got[2 + struct.unpack(">H", got[:2])[0]:]
    return n


ask(1)
assert answers(1) == 1
ask(2000)  # 70 kB, more than is held at once
print("answered", answers(2000))
END
want_out '^answered 2000$' at "$b" /usr/bin/python3 "$LAB/work/run.py"
