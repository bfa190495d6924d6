"""Reads and writes grant records of the ledger: a line of JSON, and a line with its checksum (hook/ledger/record.hpp)."""
import json
import os


def read(path):
    with open(path, encoding="utf-8") as file:
        return json.loads(file.readline())


def checksum(content):
    value = 0xcbf29ce484222325
    for byte in content:
        value = (value ^ byte) * 0x100000001b3 % (1 << 64)
    return value


def write(path, grant):
    line = json.dumps({"format": 2, **grant})
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
        file.write(f"{line}\n{checksum(line.encode()):016x}\n")
