"""The shipped nightly playbook, its pauses shortened, with an object store to publish to: a real server on loopback."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from orchestrator.lab.embedded import EmbeddedLab
from orchestrator.lab.surface import Lab
from tests.cutting_proxy import CuttingProxy
from tests.lab.place import PROJECT, said
from tests.lab.test_play_nightly import FROM_LAUNCH, NightHere, refused
from tests.made_venv import MadeVenv
from tests.s3_server import s3_server

BUCKET = "drafters"


class StoreNight(NightHere):
    def __init__(self, lab: Lab, folder: Path, python: str, server: dict[str, Any]) -> None:
        self.link = CuttingProxy(server["port"])
        self.secret = server["secret"]
        self.server = server
        super().__init__(lab, folder, python)
        shipped = (PROJECT / "playbooks/nightly.yaml").read_text()
        self.playbook = folder / "nightly.yaml"
        self.playbook.write_text(shipped.replace("times: 5, wait: 1m", "times: 1, wait: 1s"))
        assert self.playbook.read_text().count("times: 1, wait: 1s") == 2

    def environment(self) -> dict[str, str]:
        login = {"AWS_ACCESS_KEY_ID": self.server["key"], "AWS_SECRET_ACCESS_KEY": self.secret}
        endpoint = f"http://127.0.0.1:{self.link.port}"
        return {**super().environment(), **login, "AWS_ENDPOINT_URL_S3": endpoint, "AWS_DEFAULT_REGION": "us-east-1"}

    @property
    def words(self) -> list[str]:
        values = {"publish_to": f"s3://{BUCKET}/nightly", "free_disk_gib": "0.01", "within": "4s"}
        values["tell"] = str(self.teller)
        return [str(self.playbook), *(f"--var={name}={text}" for name, text in values.items())]

    def published(self) -> str:
        """Past the link that breaks."""
        import boto3

        client = boto3.client(
            "s3",
            endpoint_url=f"http://127.0.0.1:{self.server['port']}",
            region_name="us-east-1",
            aws_access_key_id=self.server["key"],
            aws_secret_access_key=self.server["secret"],
        )
        record = json.load(client.get_object(Bucket=BUCKET, Key="nightly/current.json")["Body"])
        return str(record["tree_hash"])


@pytest.fixture(scope="module")
def night(embedded_lab: EmbeddedLab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[StoreNight]:
    """One night went well: a drafter is published."""
    folder = tmp_path_factory.mktemp("store")
    made = MadeVenv(folder / "venv")
    with s3_server(BUCKET) as server:
        night = StoreNight(embedded_lab, folder, str(made.python), server)
        done = night.play()
        assert done.returncode == 0, said(done)
        assert len(night.told()) == 1
        yield night
        night.link.close()
        night.clean()


def test_the_store_goes_down_at_publish_and_the_play_goes_on_there_once_it_is_back(night: StoreNight) -> None:
    down: list[bytes] = []

    def decide(sent: bytes) -> str:
        if sent.startswith(b"PUT ") and b"weights.bin" in sent[:400]:
            down.append(b"now")
        return "cut" if down else "pass"

    before, runs = night.published(), night.runs()
    night.link.decide = decide
    refused(night, *FROM_LAUNCH, code=13, step="publish", why="the object store")
    assert down and night.published() == before
    night.link.restore()
    mended = night.play("--from", "publish")
    assert mended.returncode == 0, said(mended)
    assert night.published() != before and len(night.runs()) == len(runs) + 1
    night.told()


def test_credentials_that_no_longer_hold(night: StoreNight) -> None:
    night.secret = "changed meanwhile"
    try:
        text = refused(night, *FROM_LAUNCH, code=6, step="gate", why="SignatureDoesNotMatch")
    finally:
        night.secret = night.server["secret"]
    assert "AWS_SECRET_ACCESS_KEY" in text and "changed meanwhile" not in text
