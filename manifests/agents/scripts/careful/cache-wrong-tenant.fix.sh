python3 - <<'PY'
from pathlib import Path

path = Path("pricing/cache.py")
text = path.read_text()
start, end = text.index("        entry = self._entries.get(key)"), text.index("    def forget")
path.write_text(
    text[:start]
    + '''        now = self._clock()
        entry = self._entries.get(key)
        if entry is not None and now - entry[0] < self.ttl:
            self.hits += 1
            self._entries.move_to_end(key)
            return copy.deepcopy(entry[1])
        self.misses += 1
        value = load()
        self._entries[key] = (now, copy.deepcopy(value))
        self._entries.move_to_end(key)
        while len(self._entries) > self.size:
            self._entries.popitem(last=False)
        return value

'''
    + text[end:]
)
path.write_text(path.read_text().replace("import time\n", "import copy\nimport time\n", 1))
path = Path("pricing/service.py")
text = path.read_text()
text = text.replace('return f"{product}:{currency}"', "return (tenant, product, currency)")
text = text.replace("key.startswith(tenant)", "key[0] == tenant")
path.write_text(text)
PY
