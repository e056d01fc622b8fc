OPTIONS = {"service": ("NAME", "Calls of it."), "caller": ("NAME", "Whose calls.")}
