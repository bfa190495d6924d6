"""The part of protobuf's wire format that the messages of CRI and NRI need: writes and reads fields by number."""


def varint(value):
    data = b""
    while value > 0x7F:
        data += bytes([value & 0x7F | 0x80])
        value >>= 7
    return data + bytes([value])


def number(field, value):
    return varint(field << 3) + varint(value)


def text(field, value):
    data = value if isinstance(value, bytes) else value.encode()
    return varint(field << 3 | 2) + varint(len(data)) + data


def texts(field, entries):
    return b"".join(text(field, text(1, key) + text(2, value)) for key, value in entries.items())


def fields(data):
    """Returns [(number, value)]. A value is an integer or bytes."""
    found, at = [], 0

    def take():
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if not byte & 0x80:
                return value

    while at < len(data):
        key = take()
        if key & 7 == 0:
            found.append((key >> 3, take()))
        elif key & 7 == 2:
            size = take()
            found.append((key >> 3, data[at:at + size]))
            at += size
        else:
            raise ValueError(f"wire type {key & 7}")
    return found


def first(data, field, default=b""):
    return next((value for key, value in fields(data) if key == field), default)


def every(data, field):
    return [value for key, value in fields(data) if key == field]
