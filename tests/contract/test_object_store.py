"""Publishing into an S3 server on loopback that checks signatures, over a link that breaks."""

import asyncio
import dataclasses
import json
import os
import signal
import subprocess

import pytest

from orchestrator.errors import (
    AuthError,
    NotAsWantedError,
    OutcomeUnknownError,
    TransferError,
    UnreachableError,
    UsageError,
)
from orchestrator.inventory.loader import load_inventory
from orchestrator.operations import object_store
from orchestrator.operations.publish import publish, published, switch_published
from orchestrator.operations.where import parse_where
from tests.cutting_proxy import CuttingProxy
from tests.publishing import Trained
from tests.s3_server import s3_server

BUCKET = "models"


@pytest.fixture(scope="module")
def server():
    with s3_server(BUCKET) as server:
        yield server


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    trained = Trained(tmp_path_factory.mktemp("trained"))
    trained.runs = [trained.train(seed=seed, kib=300) for seed in (1, 2)]
    return trained


@pytest.fixture
def link(server, tmp_path, monkeypatch):
    link = CuttingProxy(server["port"])
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    for name, value in {
        "AWS_ENDPOINT_URL_S3": f"http://127.0.0.1:{link.port}",
        "AWS_ACCESS_KEY_ID": server["key"],
        "AWS_SECRET_ACCESS_KEY": server["secret"],
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_CONFIG_FILE": str(tmp_path / "config"),
        "AWS_SHARED_CREDENTIALS_FILE": str(tmp_path / "credentials"),
    }.items():
        monkeypatch.setenv(name, value)
    yield link
    link.close()


@pytest.fixture
def where(trained, request):
    return parse_where(f"s3://{BUCKET}/{request.node.name}", load_inventory(trained.inventory))


@pytest.fixture(scope="module")
def client(server):
    """Past the link that breaks."""
    import boto3

    return boto3.client(
        "s3",
        endpoint_url=f"http://127.0.0.1:{server['port']}",
        region_name="us-east-1",
        aws_access_key_id=server["key"],
        aws_secret_access_key=server["secret"],
    )


def put(trained, where, wanted=None, **options):
    return asyncio.run(publish(trained.target, wanted, where, **options))


def current(client, where):
    """The run, and its files as they lie there."""
    pointer = json.load(client.get_object(Bucket=BUCKET, Key=f"{where.prefix}/current.json")["Body"])
    top = f"{where.prefix}/{pointer['tree_hash']}/"
    listed = client.list_objects_v2(Bucket=BUCKET, Prefix=top)["Contents"]
    return pointer["run_id"], {
        one["Key"][len(top) :]: client.get_object(Bucket=BUCKET, Key=one["Key"])["Body"].read() for one in listed
    }


def weights(sent):
    return sent.startswith(b"PUT ") and b"model.safetensors" in sent[:400]


def pointer(sent):
    return sent.startswith(b"PUT ") and b"current.json" in sent[:400]


def test_publish_again_the_one_before_and_the_last_n(trained, where, link, client):
    first, second = trained.runs
    words = ("publish", "--to", where.text)
    done = trained.orch(*words, first)
    assert done.returncode == 0, done.stderr
    assert current(client, where) == (first, trained.export(first))
    assert put(trained, where, first).bytes_sent == 0
    assert put(trained, where, second).replaced.run_id == first
    assert asyncio.run(switch_published(where, None)).current.run_id == first
    assert current(client, where) == (first, trained.export(first))
    report = put(trained, where, f"{second}:1", keep=1)
    assert [len(report.removed), report.note] == [1, ""]  # the run before is the one before, and stays
    there = asyncio.run(published(where))
    assert [(one.run_id, one.step) for one in there.publications] == [(second, 1), (first, None)]
    keys = [one["Key"] for one in client.list_objects_v2(Bucket=BUCKET, Prefix=where.prefix)["Contents"]]
    assert not [key for key in keys if report.removed[0] in key]


@pytest.mark.parametrize(
    ("change", "error", "said"),
    [
        ({"AWS_SECRET_ACCESS_KEY": "wrong"}, AuthError, "SignatureDoesNotMatch"),
        ({"AWS_ACCESS_KEY_ID": "AKIAWRONG"}, AuthError, "InvalidAccessKeyId"),
        ({"AWS_ACCESS_KEY_ID": None, "AWS_SECRET_ACCESS_KEY": None}, AuthError, "no credentials"),
        ({"AWS_PROFILE": "nobody"}, AuthError, "nobody"),
        ({"AWS_ENDPOINT_URL_S3": "http://127.0.0.1:1"}, UnreachableError, "cannot be reached"),
        ({"AWS_ENDPOINT_URL_S3": "no address"}, UsageError, "no address"),
    ],
    ids=["secret", "key", "none", "profile", "nobody there", "no address"],
)
def test_a_login_that_is_refused(where, link, monkeypatch, change, error, said):
    for name, value in change.items():
        monkeypatch.setenv(name, value) if value is not None else monkeypatch.delenv(name)
    with pytest.raises(error) as caught:
        asyncio.run(published(where))  # what publishing does first
    told = f"{caught.value.what}\n{caught.value.evidence}"
    assert said in told and "AWS_ACCESS_KEY_ID" in caught.value.way_out


def test_a_profile_brings_login_and_endpoint(where, link, server, monkeypatch, tmp_path):
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_ENDPOINT_URL_S3"):
        monkeypatch.delenv(name)
    (tmp_path / "credentials").write_text(
        f"[nightly]\naws_access_key_id = {server['key']}\naws_secret_access_key = {server['secret']}\n"
    )
    (tmp_path / "config").write_text(f"[profile nightly]\nendpoint_url = http://127.0.0.1:{link.port}\n")
    assert asyncio.run(published(dataclasses.replace(where, profile="nightly"))).publications == ()


def test_a_bucket_that_is_not_there(trained, link):
    with pytest.raises(UsageError, match="no such bucket"):
        asyncio.run(published(parse_where("s3://nowhere/x", load_inventory(trained.inventory))))


@pytest.mark.parametrize("how", ["cut", "stall"])
def test_an_upload_that_breaks_leaves_the_old_one_and_again_sends_the_rest(
    trained, where, link, client, monkeypatch, how
):
    first, second = trained.runs
    put(trained, where, first)
    monkeypatch.setattr(object_store, "READ_LIMIT_S", 0.5)
    link.decide = lambda sent: how if weights(sent) and len(sent) > 100_000 else "pass"
    with pytest.raises((TransferError, UnreachableError)) as caught:
        put(trained, where, second)
    assert link.hit.is_set() and "s3://" in caught.value.what
    assert current(client, where) == (first, trained.export(first))
    assert asyncio.run(published(where)).publications[0].run_id == first  # nobody sees half of one
    link.restore()
    report = put(trained, where, second)
    assert report.bytes_sent == len(trained.export(second)["model.safetensors"])
    assert current(client, where) == (second, trained.export(second))


def test_killed_in_the_middle_of_an_upload(trained, where, link, client):
    first, second = trained.runs
    put(trained, where, first)
    link.decide = lambda sent: "stall" if weights(sent) and len(sent) > 100_000 else "pass"
    process = subprocess.Popen(trained.argv("publish", second, "--to", where.text), stderr=subprocess.DEVNULL)
    assert link.hit.wait(30)
    process.send_signal(signal.SIGKILL)
    process.wait(10)
    assert current(client, where) == (first, trained.export(first))
    link.restore()
    put(trained, where, second)
    assert current(client, where) == (second, trained.export(second))


def test_interrupted_in_the_middle_of_an_upload_it_ends_soon(trained, where, link, client):
    link.decide = lambda sent: "stall" if weights(sent) and len(sent) > 100_000 else "pass"
    process = subprocess.Popen(
        trained.argv("publish", "--to", where.text), stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    assert link.hit.wait(30)
    process.send_signal(signal.SIGINT)
    link.close()  # the server goes away, too: nothing that is waited for answers
    _, said = process.communicate(timeout=45)
    assert process.returncode == 130 and "again goes on from what has arrived" in said


def test_a_lost_answer_to_the_switch_is_looked_up(trained, where, link, client, monkeypatch):
    first, second = trained.runs
    put(trained, where, first)
    monkeypatch.setattr(object_store, "ATTEMPTS", 1)
    link.decide = lambda sent: "deaf" if pointer(sent) else "pass"
    put(trained, where, second)  # it was written, and the look tells
    assert link.hit.is_set() and current(client, where)[0] == second
    link.decide = lambda sent: "cut" if pointer(sent) else "pass"
    with pytest.raises(TransferError):
        asyncio.run(switch_published(where, first))
    assert current(client, where)[0] == second
    gone = []

    def decide(sent):
        gone.extend([1] * pointer(sent))
        return "cut" if gone else "pass"

    link.decide = decide
    with pytest.raises(OutcomeUnknownError):
        asyncio.run(switch_published(where, first))
    assert current(client, where)[0] == second


def test_what_was_damaged_over_there_is_not_made_current_and_is_sent_anew(trained, where, link, client):
    first, second = trained.runs
    put(trained, where, first)
    tree = put(trained, where, second).tree_hash
    asyncio.run(switch_published(where, None))
    put(trained, where, f"{first}:1")
    key = f"{where.prefix}/{tree}/model.safetensors"
    data = bytearray(client.get_object(Bucket=BUCKET, Key=key)["Body"].read())
    data[-1] ^= 1
    client.put_object(Bucket=BUCKET, Key=key, Body=bytes(data))
    with pytest.raises(NotAsWantedError) as caught:
        put(trained, where, second)
    assert caught.value.evidence == "model.safetensors" and current(client, where)[0] == first
    put(trained, where, second)
    assert current(client, where) == (second, trained.export(second))


def test_parts_of_a_killed_upload_are_removed(trained, where, link, client):
    tree = put(trained, where, trained.runs[0]).tree_hash
    client.delete_object(Bucket=BUCKET, Key=f"{where.prefix}/{tree}.json")
    parts = {"Bucket": BUCKET, "Key": f"{where.prefix}/{tree}/model.safetensors"}
    client.create_multipart_upload(**parts)
    put(trained, where, trained.runs[0])
    assert not client.list_multipart_uploads(Bucket=BUCKET, Prefix=where.prefix).get("Uploads")


def test_a_pointer_that_cannot_be_read_is_no_empty_place_and_another_ones_is_kept(trained, where, link, client):
    first, second = trained.runs
    old = put(trained, where, first, only_instead_of=[None]).tree_hash
    with pytest.raises(NotAsWantedError, match="another one was published meanwhile"):
        put(trained, where, second, only_instead_of=[None])
    client.put_object(Bucket=BUCKET, Key=f"{where.prefix}/current.json", Body=b'{"tree_ha')
    there = asyncio.run(published(where))
    assert there.current == object_store.UNREADABLE and there.find(there.current) is None
    with pytest.raises(NotAsWantedError, match="another one was published meanwhile"):
        put(trained, where, second, only_instead_of=[None])
    asyncio.run(switch_published(where, first))
    there = asyncio.run(published(where))
    assert (there.current, there.previous) == (old, None)
