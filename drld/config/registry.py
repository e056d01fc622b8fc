"""`[registry]`: what its keys are together, and whether the files that it names can be used."""

from __future__ import annotations

from drld.config.problems import Problems
from drld.config.schema import RegistryTable
from drld.errors import RegistryError
from drld.spec import RegistrySpec
from drld.units import format_duration

STATE_DIRECTORY = "/var/lib/drld"


def read_registry(
    table: RegistryTable | None, name: str, problems: Problems
) -> RegistrySpec | None:
    """The settings of a table; None: the file has none. `name` is this limiter's."""
    if table is None:
        return None
    spec = RegistrySpec(
        endpoints=tuple(table.endpoints),
        fleet=table.fleet,
        ttl_ns=table.ttl,
        cache=table.cache or f"{STATE_DIRECTORY}/{name}.registry.json",
        user=table.user,
        password_file=table.password_file,
        ca=table.ca,
        cert=table.cert,
        key=table.key,
        interfaces=table.interfaces,
        forget_after_ns=table.forget_after,
    )
    if _go_together(table, problems):
        _check_files(spec, problems)
    return spec


def _go_together(table: RegistryTable, problems: Problems) -> bool:
    """Whether no key contradicts another, or lacks it."""
    before = len(problems.lines)
    for key, other in (
        ("user", "password_file"),
        ("password_file", "user"),
        ("cert", "key"),
        ("key", "cert"),
    ):
        if getattr(table, key) is not None and getattr(table, other) is None:
            problems.add(["registry", other], f"is required with registry.{key}")
    secure = {url.startswith("https:") for url in table.endpoints}
    if len(secure) == 2:
        problems.add(["registry", "endpoints"], "must begin with https:// all, or with http:// all")
    for key in ("ca", "cert"):
        if getattr(table, key) is not None and secure == {False}:
            problems.add(
                ["registry", key], "must be left out unless the endpoints begin with https://"
            )
    if table.forget_after is not None and table.forget_after <= table.ttl:
        problems.refuse(
            ["registry", "forget_after"],
            format_duration(table.forget_after),
            f"longer than registry.ttl, {format_duration(table.ttl)}, for which a limiter counts "
            "as alive",
        )
    return len(problems.lines) == before


def _check_files(spec: RegistrySpec, problems: Problems) -> None:
    """Password and certificates are there: a session reads them again."""
    # Only configurations with a registry pay for its client's memory.
    from drld.registry.credentials import read_password, read_trust

    secure = spec.endpoints[0].startswith("https:")
    for read in (read_password, read_trust) if secure else (read_password,):
        try:
            read(spec)
        except RegistryError as error:
            problems.lines.append(f"{problems.file}: {error}")
