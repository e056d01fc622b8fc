"""The real nginx before an application, with the configuration of docs/requests.md."""

from __future__ import annotations

import os
import re
import shutil
import signal
import sys
from pathlib import Path

import httpx
import trio

from .test_daemons import PAGE, ports
from .test_datapath import bucket, limit, limited
from .test_front import front

FILE = """
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


async def test_nginx_asks_before_it_passes_a_request_on(tmp_path: Path) -> None:
    path = os.pathsep.join([str(Path(sys.prefix, "bin")), os.environ["PATH"], "/usr/sbin"])
    nginx = shutil.which("nginx", path=path)
    assert nginx is not None, "run scripts/setup, which fetches nginx"
    (locations,) = re.findall(r"^```nginx\n(.*?)^```", PAGE.read_text(), re.M | re.S)
    (port,) = ports(1, trio.socket.SOCK_STREAM)
    datapath = limited((limit(), bucket(2, rate=0.5)))
    with trio.fail_after(600):
        async with front(tmp_path, datapath) as made, trio.open_nursery() as nursery:
            assert "127.0.0.1:8099" in locations
            locations = locations.replace("127.0.0.1:8099", "{}:{}".format(*made.tcp))
            file = tmp_path / "nginx.conf"
            file.write_text(FILE.format(directory=tmp_path, port=port, locations=locations))
            command = [nginx, "-p", str(tmp_path), "-c", str(file), "-e", str(tmp_path / "error")]
            process = await nursery.start(trio.run_process, command)
            headers = {"Cookie": "x" * 7000, "Origin": "https://example.org"}
            async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=60) as client:
                answers: list[httpx.Response] = []
                while len(answers) < 3:
                    try:
                        answers.append(await client.post("/", headers=headers, content=b"data"))
                    except httpx.ConnectError:
                        assert process.returncode is None, (tmp_path / "error").read_text()
                assert [answer.status_code for answer in answers] == [200, 200, 429]
                assert answers[1].text == "through"
                assert answers[2].headers["retry-after"] == "2"
                assert len(datapath.read(1, 0).flows) == 1
                made.stopping.set()
                while (await client.get("/")).status_code != 500:
                    pass
            process.send_signal(signal.SIGTERM)
            await process.wait()
