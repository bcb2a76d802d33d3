import sys

sums = {}
for line in open(sys.argv[1]):
    line = line.strip()
    if line:
        name, amount = line.split(";")
        sums[name] = sums.get(name, 0) + int(amount)
for name in sorted(sums):
    print(f"{name}: {sums[name]}")
