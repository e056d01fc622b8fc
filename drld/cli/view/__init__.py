"""The frames of `drlctl top`: functions of samples, the choices of the operator and the screen."""
