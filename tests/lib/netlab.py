#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
netlab.py DIR ROLE: the servers of one host of tests/lib/netlab.bash. Ends when its standard input does.

Lines that other programs read: DIR/ROLE.seen has one line for each thing that came in ("tcp 203.0.113.10 80 from 192.0.2.2 43210",
"udp …", "dns NAME TYPE from …", "http HOST PATH"), DIR/ROLE.ready appears when everything listens.
DIR/zone: lines "NAME TYPE TTL VALUE…", read anew for each query; TYPE A, AAAA, CNAME, TXT, or FAIL (SERVFAIL), HOLD (no answer).
"""
import os
import select
import socket
import ssl
import struct
import sys
import threading

DIR, ROLE = sys.argv[1], sys.argv[2]
LOCK = threading.Lock()


def seen(text):
    with LOCK, open(f"{DIR}/{ROLE}.seen", "a", encoding="utf-8") as f:
        f.write(text + "\n")


def listen(addr, port, kind=socket.SOCK_STREAM):
    s = socket.socket(socket.AF_INET6 if ":" in addr else socket.AF_INET, kind)
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if ":" in addr:
        s.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    s.bind((addr, port))
    if kind == socket.SOCK_STREAM:
        s.listen(1024)
    return s


def each(sock, work, *args):
    def accept():
        while True:
            conn, peer = sock.accept()
            here = conn.getsockname()
            seen(f"tcp {here[0]} {here[1]} from {peer[0]} {peer[1]}")
            threading.Thread(target=guarded, args=(work, conn, *args), daemon=True).start()
    threading.Thread(target=accept, daemon=True).start()


def guarded(work, conn, *args):
    try:
        with conn:
            work(conn, *args)
    except (OSError, ValueError, ssl.SSLError):
        pass


# ---- TCP

def echo(conn):
    """Sends back what comes, and its own end when that has ended."""
    while data := conn.recv(65536):
        conn.sendall(data)
    conn.shutdown(socket.SHUT_WR)


def hello(conn):
    """Speaks first, as ssh and smtp do, then sends back lines."""
    conn.sendall(b"220 hello\r\n")
    echo(conn)


def reset(conn):
    """Ends the connection with a reset once a byte came."""
    conn.recv(1)
    conn.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def after_end(conn):
    """Reads to the end, then says how many bytes those were: half-closed connections."""
    n = 0
    while data := conn.recv(65536):
        n += len(data)
    conn.sendall(b"%d\n" % n)


def pour(conn):
    """Sends as long as somebody takes it."""
    while True:
        conn.sendall(bytes(1 << 16))


def source(conn):
    """Sends as fast as it goes as many MiB as the first line says."""
    n = int(conn.makefile("rb").readline())
    block = bytes(1 << 20)
    for _ in range(n):
        conn.sendall(block)


def http(conn, context=None):
    """One request, HTTP/1: /bytes/N gives N bytes; anything else says who asked for what."""
    if context:
        conn = context.wrap_socket(conn, server_side=True)
    f = conn.makefile("rb")
    while line := f.readline():
        parts = line.decode("latin-1").split()
        host, length = "", 0
        while (head := f.readline().decode("latin-1").strip()):
            key, _, value = head.partition(":")
            if key.lower() == "host":
                host = value.strip()
            if key.lower() == "content-length":
                length = int(value)
        f.read(length)
        path = parts[1] if len(parts) > 1 else "/"
        seen(f"http {host} {path}")
        body = bytes(int(path[7:])) if path.startswith("/bytes/") else f"hello from {ROLE} {host} {path}\n".encode()
        conn.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: %d\r\n\r\n" % len(body) + body)


# ---- UDP

def udp_echo(sock):
    def serve():
        here = sock.getsockname()
        while True:
            data, peer = sock.recvfrom(65536)
            seen(f"udp {here[0]} {here[1]} from {peer[0]} {peer[1]} {len(data)}")
            sock.sendto(data, peer)
    threading.Thread(target=serve, daemon=True).start()


TYPES = {1: "A", 28: "AAAA", 5: "CNAME", 16: "TXT", 15: "MX", 12: "PTR", 65: "HTTPS", 255: "ANY"}
NUMBERS = {v: k for k, v in TYPES.items()}


def wire_name(name):
    return b"".join(bytes([len(p)]) + p.encode() for p in name.rstrip(".").split(".") if p) + b"\0"


def zone():
    rows = []
    with open(f"{DIR}/zone", encoding="utf-8") as f:
        for line in f:
            words = line.split()
            if len(words) >= 2 and not line.startswith("#"):
                rows.append(words)
    return rows


def record(words):
    kind, ttl, value = words[1], int(words[2]), words[3]
    if kind == "A":
        data = socket.inet_pton(socket.AF_INET, value)
    elif kind == "AAAA":
        data = socket.inet_pton(socket.AF_INET6, value)
    elif kind in ("CNAME", "PTR"):
        data = wire_name(value)
    else:
        text = " ".join(words[3:]).encode()[:255]
        data = bytes([len(text)]) + text
    return wire_name(words[0]) + struct.pack(">HHIH", NUMBERS[kind], 1, ttl, len(data)) + data


def dns_answer(query, peer):
    if len(query) < 17:
        return None
    at, labels = 12, []
    while query[at]:
        labels.append(query[at + 1:at + 1 + query[at]].decode("latin-1"))
        at += 1 + query[at]
    qtype = struct.unpack(">H", query[at + 1:at + 3])[0]
    name, want = ".".join(labels).lower(), TYPES.get(qtype, str(qtype))
    seen(f"dns {name} {want} from {peer[0]} {peer[1]}")
    rows, answers, known, code = zone(), [], False, 0
    for _ in range(8):
        mine = [w for w in rows if w[0].lower() == name or (w[0].startswith("*.") and name.endswith(w[0][1:]))]
        known = known or bool(mine)
        if any(w[1] == "HOLD" for w in mine):
            return None
        if any(w[1] == "FAIL" for w in mine):
            code = 2
            break
        found = [w for w in mine if w[1] == want]
        answers += [record([name] + w[1:]) for w in found]
        alias = [w for w in mine if w[1] == "CNAME"]
        if found or not alias:
            break
        answers.append(record([name] + alias[0][1:]))
        name = alias[0][3].rstrip(".").lower()
    if not known:
        code = 3
    head = query[:2] + struct.pack(">HHHHH", 0x8180 | code, 1, len(answers), 0, 0)
    return head + query[12:at + 5] + b"".join(answers)


def dns_udp(sock):
    def serve():
        while True:
            data, peer = sock.recvfrom(4096)
            try:
                answer = dns_answer(data, peer)
            except (OSError, ValueError, IndexError, struct.error):
                continue
            if answer and len(answer) > 512:
                answer = answer[:2] + struct.pack(">H", 0x8380) + answer[4:6] + bytes(6) + data[12:]
            if answer:
                sock.sendto(answer, peer)
    threading.Thread(target=serve, daemon=True).start()


def dns_tcp(conn):
    f = conn.makefile("rb")
    while len(head := f.read(2)) == 2:
        data = f.read(struct.unpack(">H", head)[0])
        answer = dns_answer(data, conn.getpeername())
        if answer:
            conn.sendall(struct.pack(">H", len(answer)) + answer)


def main():
    role = {
        "inet": (["203.0.113.10", "203.0.113.11", "2001:db8::10"], "203.0.113.53"),
        "lan": (["10.77.0.2", "fd77::2", "169.254.169.254"], None),
        "host": (["0.0.0.0", "::"], None),
    }[ROLE]
    context = None
    if os.path.exists(f"{DIR}/server.pem"):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(f"{DIR}/server.pem")
    for addr in role[0]:
        each(listen(addr, 80), http)
        each(listen(addr, 8080), http)
        if context:
            each(listen(addr, 443), http, context)
        each(listen(addr, 7), echo)
        each(listen(addr, 22), hello)
        each(listen(addr, 1001), reset)
        each(listen(addr, 1002), after_end)
        each(listen(addr, 1003), source)
        each(listen(addr, 1004), pour)
        udp_echo(listen(addr, 7, socket.SOCK_DGRAM))
        udp_echo(listen(addr, 443, socket.SOCK_DGRAM))
    if role[1]:
        dns_udp(listen(role[1], 53, socket.SOCK_DGRAM))
        each(listen(role[1], 53), dns_tcp)
    with open(f"{DIR}/{ROLE}.ready", "w", encoding="utf-8"):
        pass
    while select.select([sys.stdin], [], [])[0]:
        if not os.read(0, 4096):
            return


main()
