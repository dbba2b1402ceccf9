# Escapes of strings, characters of other scripts, and lengths.
MODE = "\x41"
TABLE = {"\u00e9t\u00e9": 1, "\101\60\7": 2, "\U0001f600": 4, r"\x41": 8, 'it\'s': 16, "a\
b": 32, "\q\8": 64, "\0": 128}
NAMES = ["\a\b\f\n\r\t\v", "\\", """two
lines""", "\x7f\xff", "\1234", ""]


def score_mod(score, b, h, q_idx, kv_idx):
    x = sum(map(len, NAMES)) + 10 * len("ä") + 100 * len("\u4e2d文😀")
    if MODE == "A" and "\x42" in "ABC" and "é" == "\xe9":
        x += TABLE["été"] + TABLE["A0\x07"] + TABLE["😀"] + TABLE["\\x41"] + TABLE["it's"] + TABLE["ab"]
    x += TABLE["\\q\\8"] + TABLE["\x00"]
    return score + x + (h if NAMES[4] == "S4" else kv_idx)
