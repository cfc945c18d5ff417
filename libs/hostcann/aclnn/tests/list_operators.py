"""Prints the operators of libopapi.so as a Markdown table: `./bazelw run //libs/hostcann/aclnn:operators`."""

from oracle import opapi

rows = [line.split("(", 1) for line in opapi().JumarAclnnOperators().decode().splitlines()]
print(f"{len(rows)} operators\n\n| operator | arguments |\n| --- | --- |")
for name, arguments in rows:
    print(f"| {name} | {arguments.removesuffix(')')} |")
