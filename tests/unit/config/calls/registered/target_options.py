"""The options of `drlctl limit` for calls."""

OPTIONS = {"service": ("NAME", "Calls of it."), "caller": ("NAME", "Whose calls.")}
