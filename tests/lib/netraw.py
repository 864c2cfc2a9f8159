#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
netraw.py: frames that no program of a box should be able to send, for tests/box/net-raw.sh; run inside the network namespace.

	netraw.py watch FILE		one line in FILE for each frame that any interface here takes or sends: "KIND IN|OUT ETHERTYPE PROTOCOL SOURCE
					DESTINATION [options]", KIND "-" for frames that are not ours. FILE.ready appears first.
	netraw.py send IF OWN4 PEER4 OWN6 PEER6 KIND...	send these kinds, "all" for all but the good ones; prints how many
	netraw.py kinds			names them
	netraw.py macs IF N		send N broadcast frames, each from another hardware address

Each frame carries "cubbyraw:KIND;", so that it is found wherever it goes. Formats: RFC 791, 792, 768, 9293, 8200, 4443, 4861, 826, 2131; IEEE
802.1Q.
"""
import socket
import struct
import sys

BOX = bytes.fromhex("026375626279")  # WORLD_MAC: of every end (net/world.h)
EVIL = bytes.fromhex("02e000000bad")
ALL = b"\xff" * 6
INET4, INET6 = "203.0.113.10", "2001:db8::10"


def a4(s):
    return socket.inet_pton(socket.AF_INET, s)


def a6(s):
    return socket.inet_pton(socket.AF_INET6, s)


def total(data):
    if len(data) % 2:
        data += b"\0"
    n = sum(struct.unpack(f">{len(data) // 2}H", data))
    n = (n >> 16) + (n & 0xffff)
    return ~(n + (n >> 16)) & 0xffff


def ip4(src, dst, proto, body, options=b"", frag=0, ident=7):
    head = struct.pack(">BBHHHBBH4s4s", 0x45 + len(options) // 4, 0, 20 + len(options) + len(body), ident, frag, 64, proto, 0,
                       a4(src), a4(dst)) + options
    return head[:10] + struct.pack(">H", total(head)) + head[12:] + body


def ip6(src, dst, proto, body):
    return struct.pack(">IHBB16s16s", 6 << 28, len(body), proto, 255, a6(src), a6(dst)) + body


def summed(src, dst, proto, body, at):
    """With the checksum of TCP, UDP, ICMPv6 filled in."""
    pack = a6 if ":" in src else a4
    fake = pack(src) + pack(dst) + struct.pack(">II", len(body), proto)
    return body[:at] + struct.pack(">H", total(fake + body) or 0xffff) + body[at + 2:]


def ip(src, dst, proto, body, **more):
    return ip6(src, dst, proto, body) if ":" in src else ip4(src, dst, proto, body, **more)


def udp(src, dst, port, body, sport=40000, **more):
    data = struct.pack(">HHHH", sport, port, 8 + len(body), 0) + body
    return ip(src, dst, 17, summed(src, dst, 17, data, 6), **more)


def tcp(src, dst, port, body, flags=2, **more):
    data = struct.pack(">HHIIBBHHH", 40001, port, 1000, 0, 0x50, flags, 65535, 0, 0) + body
    return ip(src, dst, 6, summed(src, dst, 6, data, 16), **more)


def icmp(src, dst, kind, body, code=0, **more):
    data = struct.pack(">BBH", kind, code, 0) + body
    if ":" in src:
        return ip6(src, dst, 58, summed(src, dst, 58, data, 2))
    return ip4(src, dst, 1, data[:2] + struct.pack(">H", total(data)) + data[4:], **more)


def frame(packet, to=BOX, kind=None, source=BOX, tags=b""):
    return to + source + tags + struct.pack(">H", kind or (0x86dd if packet[0] >> 4 == 6 else 0x0800)) + packet


def arp(op, mac, addr, target, mark):
    return frame(struct.pack(">HHBBH6s4s6s4s", 1, 0x0800, 6, 4, op, mac, a4(addr), bytes(6), a4(target)) + mark, ALL, 0x0806, mac)


def kinds(own4, peer4, own6, peer6):
    """Name: function of the mark that gives the frames."""
    k = {}
    echo = struct.pack(">HH", 77, 1)
    # The ones that may pass.
    k["good-udp4"] = lambda m: [frame(udp(own4, INET4, 7, m))]
    k["good-udp6"] = lambda m: [frame(udp(own6, INET6, 7, m))]
    # To the peer, by every address.
    for four, own, peer in ((4, own4, peer4), (6, own6, peer6)):
        for to, word in ((BOX, "one"), (ALL, "all")):
            k[f"peer-tcp{four}-{word}"] = lambda m, o=own, p=peer, t=to: [frame(tcp(o, p, 9999, m), t)]
            k[f"peer-ack{four}-{word}"] = lambda m, o=own, p=peer, t=to: [frame(tcp(o, p, 9999, m, 16), t)]
            k[f"peer-udp{four}-{word}"] = lambda m, o=own, p=peer, t=to: [frame(udp(o, p, 9999, m), t)]
            k[f"peer-icmp{four}-{word}"] = lambda m, o=own, p=peer, t=to, f=four: [frame(icmp(o, p, 8 if f == 4 else 128, echo + m), t)]
    # What isn't IP, and what is hidden under tags.
    for to, word in ((BOX, "one"), (ALL, "all")):
        k[f"ethertype-{word}"] = lambda m, t=to: [frame(m, t, 0x88b5)]
        k[f"vlan-{word}"] = lambda m, t=to: [frame(udp(own4, peer4, 9999, m), t, tags=b"\x81\0\0\5")]
        k[f"qinq-{word}"] = lambda m, t=to: [frame(udp(own4, peer4, 9999, m), t, tags=b"\x88\xa8\0\5\x81\0\0\6")]
    # Who is where.
    k["arp-gateway"] = lambda m: [arp(2, EVIL, "198.18.0.1", peer4, m)]
    k["arp-peer"] = lambda m: [arp(2, EVIL, peer4, "198.18.0.1", m), arp(1, EVIL, peer4, peer4, m)]
    k["arp-host"] = lambda m: [arp(2, EVIL, "192.0.2.1", "192.0.2.2", m)]
    k["nd-gateway"] = lambda m: [frame(icmp(own6, "ff02::1", 136, b"\x60\0\0\0" + a6("fd63:7562:6279::1") + b"\2\1" + EVIL + m), ALL)]
    k["nd-peer"] = lambda m: [frame(icmp(own6, "ff02::1", 136, b"\x60\0\0\0" + a6(peer6) + b"\2\1" + EVIL + m), ALL)]
    bootp = struct.pack(">BBBBIHHIIII", 2, 1, 6, 0, 99, 0, 0, 0, 0x0a000063, 0x0a000001, 0) + EVIL + bytes(202) + b"\x63\x82\x53\x63\x35\1\2\xff"
    k["dhcp-ask"] = lambda m: [frame(udp("0.0.0.0", "255.255.255.255", 67, b"\1" + bootp[1:] + m, 68), ALL)]
    k["dhcp-offer"] = lambda m: [frame(udp(own4, "255.255.255.255", 68, bootp + m, 67), ALL)]
    # Routes.
    prefix = b"\3\4\x40\xc0\0\0\xff\xff\0\0\xff\xff\0\0\0\0" + a6("2001:db8:bad::")
    for dst, word in (("ff02::1", "all"), (peer6, "peer"), ("2001:db8:1::2", "host")):
        k[f"ra-{word}"] = lambda m, d=dst: [frame(icmp("fe80::1", d, 134, b"\x40\0\xff\xff" + bytes(8) + prefix + m), ALL)]
    inner = ip4(peer4, INET4, 17, bytes(8))
    for src, dst, word in (("198.18.0.1", peer4, "peer"), (own4, peer4, "own"), ("192.0.2.1", "192.0.2.2", "host")):
        k[f"redirect-{word}"] = lambda m, s=src, d=dst: [frame(icmp(s, d, 5, a4(own4) + inner + m, 1))]
    # IPv6 in its corners, tunnels.
    k["link-local"] = lambda m: [frame(icmp("fe80::2", "ff02::1", 128, echo + m), ALL), frame(icmp("fe80::2", "fe80::1", 128, echo + m))]
    k["groups"] = lambda m: [frame(icmp(own4, g, 8, echo + m), ALL) for g in ("224.0.0.1", "255.255.255.255")]
    k["mapped"] = lambda m: [frame(udp(own6, "::ffff:10.77.0.2", 7, m)), frame(udp(own6, "::ffff:192.0.2.2", 7, m))]
    k["tunnels"] = lambda m: [frame(udp(own6, d, 7, m)) for d in ("2002:a4d:2::1", "64:ff9b::a4d:2", "2001:0:a4d:2::1", "fd77::2")]
    k["in-ip"] = lambda m: [frame(ip4(own4, INET4, 41, udp(own6, INET6, 7, m))), frame(ip4(own4, INET4, 4, udp(own4, INET4, 7, m)))]
    # False sources.
    for src, word in ((peer4, "peer"), ("192.0.2.2", "host"), ("127.0.0.1", "loopback"), ("10.77.0.2", "lan"), (INET4, "inet"),
                      ("198.18.0.1", "gateway"), ("0.0.0.0", "none")):
        k[f"source-{word}"] = lambda m, s=src: [frame(udp(s, INET4, 7, m)), frame(tcp(s, INET4, 80, m)), frame(udp(s, peer4, 9999, m)),
                                               frame(icmp(s, INET4, 8, echo + m)), frame(udp(s, "198.18.0.1", 53, m))]
    for src, word in ((peer6, "peer6"), ("2001:db8:1::2", "host6"), ("::1", "loopback6"), ("::", "none6")):
        k[f"source-{word}"] = lambda m, s=src: [frame(udp(s, INET6, 7, m)), frame(tcp(s, INET6, 80, m)), frame(icmp(s, INET6, 128, echo + m))]
    k["to-loopback"] = lambda m: [frame(f(own4, "127.0.0.1", p, m)) for f in (udp, tcp) for p in (7, 7000, 8080)] + [
        frame(f(own6, "::1", p, m)) for f in (udp, tcp) for p in (7, 7000, 8080)]
    k["to-host"] = lambda m: [frame(f(own4, d, p, m)) for f in (udp, tcp) for d in ("192.0.2.2", "10.77.0.1") for p in (7, 8080)]
    k["to-lan"] = lambda m: [frame(f(own4, d, 80, m)) for f in (udp, tcp) for d in ("10.77.0.2", "169.254.169.254")]
    # Odd protocols, options, fragments.
    k["protocols"] = lambda m: [frame(ip4(own4, INET4, p, m)) for p in (2, 4, 33, 47, 50, 51, 89, 103, 112, 132, 136, 253)]
    lsrr, rr = b"\x83\7\4" + a4("10.77.0.2") + b"\1", b"\7\7\4" + bytes(4) + b"\1"
    k["source-route"] = lambda m: [frame(udp(own4, INET4, 7, m, options=lsrr)), frame(tcp(own4, INET4, 80, m, options=lsrr)),
                                   frame(udp(own4, "198.18.0.1", 7, m, options=lsrr))]
    k["record-route"] = lambda m: [frame(udp(own4, peer4, 9999, m, options=rr)), frame(icmp(own4, peer4, 8, echo + m, options=rr))]
    # udp() makes the whole packet: what follows its IP header is cut into fragments.
    def pieces(m, cut):
        whole = udp(own4, INET4, 7, bytes(32) + m)[20:]
        return [frame(ip4(own4, INET4, 17, whole[:cut], frag=0x2000, ident=99)), frame(ip4(own4, INET4, 17, whole[cut:], frag=cut // 8, ident=99))]
    k["fragments"] = lambda m: pieces(m, 24)
    k["tiny-fragment"] = lambda m: [frame(ip4(own4, INET4, 6, struct.pack(">HHI", 40001, 80, 1000), frag=0x2000, ident=98)),
                                    frame(ip4(own4, INET4, 6, tcp(own4, INET4, 80, m)[28:], frag=1, ident=98))]
    k["overlap"] = lambda m: [frame(ip4(own4, INET4, 17, udp(own4, INET4, 7, m)[20:], frag=0x2000, ident=97)),
                              frame(ip4(own4, INET4, 17, udp(own4, INET4, 8080, m)[20:], frag=0x2000, ident=97)),
                              frame(ip4(own4, INET4, 17, udp(own4, INET4, 8080, m)[28:], frag=1, ident=97))]
    k["fragment6"] = lambda m: [frame(ip6(own6, INET6, 44, b"\x11\0\0\0\0\0\0\1" + udp(own6, INET6, 7, m)[40:]))]
    k["routing6"] = lambda m: [frame(ip6(own6, INET6, 43, b"\x11\2\0\1\0\0\0\0" + a6(peer6) + udp(own6, INET6, 7, m)[40:])),
                               frame(ip6(own6, INET6, 0, b"\x3a\0\1\4\0\0\0\0" + icmp(own6, INET6, 128, echo + m)[40:]))]
    k["icmp-odd"] = lambda m: [frame(icmp(own4, INET4, t, bytes(16) + m)) for t in (0, 3, 4, 9, 10, 11, 13, 15, 17)]
    # Who else is there?
    k["mdns"] = lambda m: [frame(udp(own4, "224.0.0.251", 5353, m), ALL), frame(udp(own6, "ff02::fb", 5353, m), ALL)]
    k["ssdp"] = lambda m: [frame(udp(own4, "239.255.255.250", 1900, m), ALL)]
    k["llmnr"] = lambda m: [frame(udp(own4, "224.0.0.252", 5355, m), ALL)]
    k["netbios"] = lambda m: [frame(udp(own4, "10.77.0.255", 137, m), ALL), frame(udp(own4, "255.255.255.255", 137, m), ALL)]
    return k


def send(name, addrs, names):
    s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    s.bind((name, 0))
    all_kinds, n = kinds(*addrs), 0
    if names == ["all"]:
        names = [k for k in all_kinds if not k.startswith("good-")]
    for kind in names:
        for data in all_kinds[kind](f"cubbyraw:{kind};".encode()):
            s.send(data)
            n += 1
    print(n)


def macs(name, n):
    s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    s.bind((name, 0))
    for i in range(n):
        s.send(ALL + b"\2\0" + struct.pack(">I", i) + b"\x88\xb5cubbyraw:macs;")
    print(n)


def watch(path):
    s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))  # ETH_P_ALL
    s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 22)
    with open(path, "a", encoding="utf-8", buffering=1) as f:
        with open(path + ".ready", "w", encoding="utf-8"):
            pass
        while True:
            data, where = s.recvfrom(65536)
            if len(data) < 14:
                continue
            kind = data.split(b"cubbyraw:", 1)[1].split(b";", 1)[0].decode("latin-1") if b"cubbyraw:" in data else "-"
            kind = kind if kind.replace("-", "").isalnum() else "-"
            about = ["OUT" if where[2] == socket.PACKET_OUTGOING else "IN", data[12:14].hex()]
            if about[1] == "0800" and len(data) >= 34:
                about += [str(data[23]), socket.inet_ntop(socket.AF_INET, data[26:30]), socket.inet_ntop(socket.AF_INET, data[30:34])]
                about += ["options"] if data[14] != 0x45 else []
            elif about[1] == "86dd" and len(data) >= 54:
                about += [str(data[20]), socket.inet_ntop(socket.AF_INET6, data[22:38]), socket.inet_ntop(socket.AF_INET6, data[38:54])]
            f.write(" ".join([kind, *about]) + "\n")


if sys.argv[1] == "watch":
    watch(sys.argv[2])
elif sys.argv[1] == "macs":
    macs(sys.argv[2], int(sys.argv[3]))
elif sys.argv[1] == "kinds":
    print("\n".join(kinds("198.18.1.1", "198.18.1.2", "fd00::1", "fd00::2")))
else:
    send(sys.argv[2], sys.argv[3:7], sys.argv[7:])
