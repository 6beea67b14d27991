"""An S3 server on loopback that checks signatures: moto, in a process of its own. python -m tests.s3_server BUCKET

Prints one JSON object: {"port", "key", "secret"}: the only login that it lets in. Ends with its stdin.
"""

from __future__ import annotations

import contextlib
import json
import logging
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from typing import Any

POLICY = '{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":"s3:*","Resource":"*"}]}'


@contextlib.contextmanager
def s3_server(bucket: str) -> Iterator[dict[str, Any]]:
    """What it printed, for as long as it runs."""
    argv = [sys.executable, "-m", "tests.s3_server", bucket]
    process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin is not None and process.stdout is not None
    try:
        yield json.loads(process.stdout.readline())
    finally:
        process.stdin.close()
        process.wait(10)
        process.stdout.close()


def main(bucket: str) -> None:
    import boto3
    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    _, port = server.get_host_and_port()
    anyone = {
        "endpoint_url": f"http://127.0.0.1:{port}",
        "region_name": "us-east-1",
        "aws_access_key_id": "x",
        "aws_secret_access_key": "y",
    }
    iam = boto3.client("iam", **anyone)
    iam.create_user(UserName="publisher")
    iam.put_user_policy(UserName="publisher", PolicyName="store", PolicyDocument=POLICY)
    login = iam.create_access_key(UserName="publisher")["AccessKey"]
    boto3.client("s3", **anyone).create_bucket(Bucket=bucket)
    strict = urllib.request.Request(
        f"http://127.0.0.1:{port}/moto-api/reset-auth", data=b"0", headers={"Content-Type": "text/plain"}
    )
    urllib.request.urlopen(strict).close()
    print(json.dumps({"port": port, "key": login["AccessKeyId"], "secret": login["SecretAccessKey"]}), flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main(sys.argv[1])
