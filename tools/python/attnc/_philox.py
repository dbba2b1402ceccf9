"""Random numbers by position, computed in Python: attnc.random on numbers and arrays of NumPy.

In: a seed and positions, ints. Out: the numbers that kernels draw, bit by bit (dsl/SPEC.md, section 6).
"""

WORD = 0xFFFFFFFF  # all bits of a word
PARAMETERS = ("seed", "b", "h", "q_idx", "kv_idx")


def product(factor, word):
    """Returns the high and the low word of a product. `word` is an int, or int64, whose product may wrap."""
    both = factor * word
    return both >> 32 & WORD, both & WORD


def total(word, number):
    return (word + number) & WORD


def philox(counter, key, product=product, total=total):
    """Returns the four words of Philox 4x32-10 for a counter of four words and a key of two."""
    (c0, c1, c2, c3), (key0, key1) = counter, key
    for _ in range(10):
        (even_high, even), (odd_high, odd) = product(0xD2511F53, c0), product(0xCD9E8D57, c2)
        c0, c1, c2, c3 = odd_high ^ c1 ^ key0, odd, even_high ^ c3 ^ key1, even
        key0, key1 = total(key0, 0x9E3779B9), total(key1, 0xBB67AE85)
    return c0, c1, c2, c3


def bits_at(key, b, h, q, kv, *arithmetic):
    """Returns the 24 bits of the number at a position. All arguments are words."""
    bits, place, shift = 0, (q & 1) | (q >> 2 & 2), (kv & 1) << 3 | (kv & 8) << 1
    for digit in (0, 1, 8):
        words = philox((kv ^ (kv & 9) | digit, q ^ (q & 9), h, b), key, *arithmetic)
        bits = bits << 8 | sum((word >> shift & 255) * (place == number) for number, word in enumerate(words))
    return bits


def no_int(name, found):
    return TypeError(f"`random` needs an int as `{name}`, not {found}")


def random_of(values):
    """Returns the number, or the array of numbers, of values in the order of PARAMETERS."""
    if any(type(value).__module__ == "numpy" for value in values):
        return _of_arrays(values)
    for name, value in zip(PARAMETERS, values):
        if not hasattr(value, "__index__"):
            raise no_int(name, repr(value))
    seed, *position = (value.__index__() for value in values)
    return bits_at((seed & WORD, seed >> 32 & WORD), *(value & WORD for value in position)) / (1 << 24)


def _of_arrays(values):
    import numpy

    arrays = [numpy.asarray(value) for value in values]
    for name, array in zip(PARAMETERS, arrays):
        if array.dtype.kind not in "bui":
            raise no_int(name, f"an array of {array.dtype}")
    shape = numpy.broadcast_shapes(*(array.shape for array in arrays))
    seed, *position = (array.astype(numpy.int64).reshape(array.shape or 1) for array in arrays)
    bits = bits_at((seed & WORD, seed >> 32 & WORD), *(array & WORD for array in position))
    return (bits / numpy.float32(1 << 24)).astype(numpy.float32).reshape(shape)
