import hashlib
import io

import pandas as pd

rows = "\n".join("%s,%d,%f,2026-01-%02d" % ("abcdefgh"[i % 8], i * 7919 % 1000, i * 0.5, 1 + i % 28) for i in range(20_000))
df = pd.read_csv(io.StringIO("k,v,w,day\n" + rows), parse_dates=["day"])
print(df.dtypes.to_string(), df.shape)
g = df.groupby("k").agg({"v": "sum", "w": ["mean", "std"], "day": "max"})
print(g.to_string())
names = pd.DataFrame({"k": list("abcdxyz"), "name": ["n%d" % i for i in range(7)]})
m = df.merge(names, on="k", how="left")
print(m["name"].value_counts(dropna=False).to_string())
print(df.pivot_table(index="k", columns=df["day"].dt.day_of_week, values="w", aggfunc="median").to_string())
print(df.set_index("day")["w"].resample("7D").mean().to_string())
text = m.sort_values(["name", "v", "w"]).to_csv(index=False)
print(len(text), hashlib.sha256(text.encode()).hexdigest())
print(m.describe().to_string())
