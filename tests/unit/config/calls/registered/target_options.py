OPTIONS = {"service": ("NAME", "Calls of it."), "caller": ("NAME", None)}
