"""Trace contexts that are well formed and that are not, for the client and for the database."""

PARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
STATE = "rojo=00f067aa0ba902b7,congo=t61rcWkgMzE"
GOOD_PARENTS = [PARENT, PARENT[:-2] + "00", PARENT[:-2] + "ff", "01" + PARENT[2:], "fe" + PARENT[2:]]
BAD_PARENTS = [
    "x", " ", PARENT.upper(), PARENT[:-1], PARENT + "0", PARENT + "\n", " " + PARENT, PARENT + "-00", "ff" + PARENT[2:], "0" + PARENT[2:],
    PARENT.replace("4bf92f3577b34da6a3ce929d0e0e4736", "0" * 32), PARENT.replace("00f067aa0ba902b7", "0" * 16), PARENT.replace("-", "_"),
    PARENT.replace("4bf9", "4bg9"),
    PARENT.replace("4bf9", "\u0664bf9"), "00-" * 100_000, "'; DROP TABLE queue_message; --", "\\", '{"a": 1}',
]  # fmt: skip
GOOD_STATES = [
    STATE, "a=1", "a=1,,b=2", " a=1 ,\tb=2\t", "a@b=1", "1@b=1", "a/*-_=1", "a= !~", "a=-", "a=" + "x" * 256, "a" * 255 + "=1",
    ",".join(f"k{number}=1" for number in range(32)),
]  # fmt: skip
BAD_STATES = [
    "a", "=1", "a=", "a= ", "A=1", "a=1=2", "a=\u00e4", "a=\x01", "@b=1", "a@=1", "a@b@c=1", "a=1,a=2", "a=1;b=2", ",", " ",
    "a=" + "x" * 257, "a" * 257 + "=1", ",".join(f"k{number}=1" for number in range(33)), "a=1," + "," * 600, "\n", "a=1\n",
]  # fmt: skip
