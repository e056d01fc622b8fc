"""The real nginx, HAProxy and Caddy before an application, as docs/requests-proxies.md has them."""

from __future__ import annotations

import re
import signal
from dataclasses import replace
from functools import partial
from pathlib import Path
from random import Random

import httpx
import trio

from drld import config
from drld.model import Enforcement
from drld.requests.datapath import RequestDatapath
from drld.requests.spec import ITEM
from testbed.programs import environment, program
from tests.local_daemons import ROOT, ports

from .fronts import Front, front
from .made import bucket, limit, limited

PAGE = (ROOT / "docs" / "requests-proxies.md").read_text()
NGINX = """
daemon off;
master_process off;
pid {directory}/pid;
error_log {directory}/error.log;
events {{ }}
http {{
    access_log off;
    client_body_temp_path {directory}/body;
    proxy_temp_path {directory}/proxy;
    fastcgi_temp_path {directory}/fastcgi;
    scgi_temp_path {directory}/scgi;
    uwsgi_temp_path {directory}/uwsgi;
    upstream backend {{ server unix:{directory}/backend; }}
    server {{
        listen unix:{directory}/backend;
        return 200 through;
    }}
    server {{
        listen 127.0.0.1:{port};
        {locations}
    }}
}}
"""


DEFAULTS = """
defaults
    timeout connect 5s
    timeout client 60s
    timeout server 60s
"""
CADDY = """
{{
    admin off
    auto_https off
}}
http://127.0.0.1:{backend} {{
    respond through
}}
"""
BACKEND = """
backend app
    mode http
    http-request return status 200 content-type text/plain string through
"""


def block(language: str) -> str:
    (found,) = re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.M | re.S)
    return str(found)


async def protected(
    made: Front, port: int, command: list[str], log: Path, *, failing: int, ended: int
) -> None:
    """A proxy lets two requests through, refuses the third, and then has no limiter.

    `failing` is its status then, and `ended` its exit status after SIGTERM.
    """
    headers = {"Cookie": "x" * 7000, "Origin": "https://example.org"}
    with log.open("ab") as errors:
        start = partial(
            trio.run_process, command, env=environment("haproxy"), stderr=errors, check=False
        )
        async with trio.open_nursery() as nursery:
            process = await nursery.start(start)
            async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=60) as client:
                answers: list[httpx.Response] = []
                while len(answers) < 3:
                    try:
                        answers.append(await client.post("/", headers=headers, content=b"data"))
                    except httpx.ConnectError:
                        assert process.returncode is None, log.read_text()
                assert [answer.status_code for answer in answers] == [200, 200, 429], (
                    log.read_text()
                )
                assert answers[1].text == "through"
                assert answers[2].headers["retry-after"] == "2"
                assert len(made.datapath.read(1, 0).flows) == 1
                made.stopping.set()
                while (await client.get("/")).status_code != failing:
                    pass
            process.send_signal(signal.SIGTERM)
            assert await process.wait() == ended


async def test_nginx_asks_before_it_passes_a_request_on(tmp_path: Path) -> None:
    (port,) = ports(1, trio.socket.SOCK_STREAM)
    datapath = limited((limit(), bucket(2, rate=0.5)))
    with trio.fail_after(600):
        async with front(tmp_path, datapath) as made:
            locations = at(block("nginx"), made)
            file, log = tmp_path / "nginx.conf", tmp_path / "error"
            file.write_text(NGINX.format(directory=tmp_path, port=port, locations=locations))
            command = [program("nginx"), "-p", str(tmp_path), "-c", str(file), "-e", str(log)]
            await protected(made, port, command, log, failing=500, ended=0)


async def test_nginx_limits_each_user_as_the_ten_minutes_say(tmp_path: Path) -> None:
    """Step 4: basic authentication, and the user in the question."""
    (port,) = ports(1, trio.socket.SOCK_STREAM)
    text = Path("docs/requests.example.toml").read_text(encoding="utf-8")
    assert "`&user=$remote_user`" in PAGE
    assert "`api-user`" in PAGE
    datapath = RequestDatapath(Random(1), b"of this daemon")
    found = [it for it in config.parse(text, "f").limits if it.name == "api-user"]
    small = [replace(it, policy=replace(it.policy, burst=3 * ITEM)) for it in found]
    datapath.attach([(it, Enforcement()) for it in small], 0)
    users = tmp_path / "users"
    users.write_text("alice:{PLAIN}secret\nbob:{PLAIN}secret\n")
    with trio.fail_after(600):
        async with front(tmp_path, datapath) as made:
            asked = at(block("nginx"), made).replace(
                "$remote_addr;", "$remote_addr&user=$remote_user;"
            )
            locations = f'auth_basic "a"; auth_basic_user_file {users};\n{asked}'
            file, log = tmp_path / "nginx.conf", tmp_path / "error"
            file.write_text(NGINX.format(directory=tmp_path, port=port, locations=locations))
            command = [program("nginx"), "-p", str(tmp_path), "-c", str(file), "-e", str(log)]
            async with trio.open_nursery() as nursery:
                process = await nursery.start(partial(trio.run_process, command, check=False))
                async with httpx.AsyncClient(
                    base_url=f"http://127.0.0.1:{port}", timeout=60
                ) as http:
                    codes: dict[str, list[int]] = {"alice": [], "bob": []}
                    while len(codes["bob"]) < 4:
                        for user, its in codes.items():
                            try:
                                answer = await http.get("/", auth=(user, "secret"))
                            except httpx.ConnectError:
                                assert process.returncode is None, log.read_text()
                                break
                            its.append(answer.status_code)
                process.send_signal(signal.SIGTERM)
            assert codes == {user: [200, 200, 200, 429] for user in codes}, log.read_text()


async def test_haproxy_asks_before_it_passes_a_request_on(tmp_path: Path) -> None:
    (port,) = ports(1, trio.socket.SOCK_STREAM)
    datapath = limited((limit(), bucket(2, rate=0.5)))
    with trio.fail_after(600):
        async with front(tmp_path, datapath) as made:
            script = tmp_path / "drld.lua"
            script.write_text(at(block("lua"), made))
            configuration = block("haproxy") + BACKEND
            for old, new in (
                ("/etc/haproxy/drld.lua\n", f"{script}\n{DEFAULTS}"),
                ("bind :80", f"bind 127.0.0.1:{port}"),
            ):
                assert old in configuration
                configuration = configuration.replace(old, new)
            file = tmp_path / "haproxy.cfg"
            file.write_text(configuration)
            command = [program("haproxy"), "-db", "-f", str(file)]
            await protected(
                made, port, command, tmp_path / "error", failing=503, ended=-signal.SIGTERM
            )


async def test_caddy_asks_before_it_passes_a_request_on(tmp_path: Path) -> None:
    port, backend = ports(2, trio.socket.SOCK_STREAM)
    datapath = limited((limit(), bucket(2, rate=0.5)))
    with trio.fail_after(600):
        async with front(tmp_path, datapath) as made:
            site = at(block("caddyfile"), made)
            for old, new in (
                ("example.org", f"http://127.0.0.1:{port}"),
                ("localhost:8080", f"127.0.0.1:{backend}"),
            ):
                assert old in site
                site = site.replace(old, new)
            file = tmp_path / "Caddyfile"
            file.write_text(CADDY.format(backend=backend) + site)
            command = ["env", f"HOME={tmp_path}", program("caddy"), "run"]
            command += ["--config", str(file), "--adapter", "caddyfile"]
            await protected(made, port, command, tmp_path / "error", failing=502, ended=0)


def at(text: str, made: Front) -> str:
    """The configuration of the page, for a limiter on another port."""
    assert "127.0.0.1:8099" in text
    return text.replace("127.0.0.1:8099", "{}:{}".format(*made.tcp))
