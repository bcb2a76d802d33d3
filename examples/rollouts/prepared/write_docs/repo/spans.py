def overlaps(a, b):
    return a[0] < b[1] and b[0] < a[1]


def merged(spans):
    result = []
    for start, end in sorted(spans):
        if result and start <= result[-1][1]:
            result[-1] = (result[-1][0], max(result[-1][1], end))
        else:
            result.append((start, end))
    return result


def covered(spans):
    return sum(end - start for start, end in merged(spans))
