"""What boto3 raises, as what happened, the evidence and the way out."""

from __future__ import annotations

from typing import Any

from orchestrator.errors import AuthError, OrchError, OutcomeUnknownError, TransferError, UnreachableError, UsageError

CREDENTIALS = (
    "credentials come from AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or --profile NAME of ~/.aws/credentials; "
    "the endpoint from AWS_ENDPOINT_URL_S3 or the profile's endpoint_url"
)
NO_SUCH = ("404", "NoSuchKey", "NotFound")
REFUSED = (
    *("403", "AccessDenied", "InvalidAccessKeyId", "SignatureDoesNotMatch", "ExpiredToken", "InvalidToken"),
    *("AuthorizationHeaderMalformed", "AllAccessDisabled", "401", "Unauthorized", "InvalidClientTokenId"),
)
FULL = ("507", "InsufficientStorage", "QuotaExceeded", "XMinioStorageFull", "XMinioAdminBucketQuotaExceeded")


def is_missing(error: Exception) -> bool:
    """An object that is not there; a bucket that is not there is something else."""
    return _code(error) in NO_SUCH


def told(error: Exception, where: str) -> OrchError:
    """Anything that an S3 call raised."""
    from boto3.exceptions import Boto3Error
    from botocore import exceptions as boto

    cause = error
    if isinstance(error, Boto3Error) and isinstance(error.__context__, Exception):
        cause = error.__context__  # S3UploadFailedError and the like
    text = _text(cause)
    if isinstance(cause, boto.NoCredentialsError | boto.PartialCredentialsError | boto.ProfileNotFound):
        return AuthError(f"{where}: no credentials for the object store", evidence=text, way_out=CREDENTIALS)
    if isinstance(cause, boto.ClientError):
        return _refused(cause, where, text)
    if isinstance(
        cause, boto.ConnectTimeoutError | boto.EndpointConnectionError | boto.ProxyConnectionError | boto.SSLError
    ):
        return UnreachableError(f"{where}: the object store cannot be reached", evidence=text, way_out=CREDENTIALS)
    if isinstance(cause, boto.HTTPClientError | boto.ResponseStreamingError):
        return TransferError(
            f"{where}: the object store stopped answering; what is current there is as it was",
            evidence=text,
            way_out="orch publish again: what has arrived is not sent again",
        )
    if isinstance(cause, boto.BotoCoreError | ValueError):
        return UsageError(f"{where}: the object store cannot be asked like that", evidence=text, way_out=CREDENTIALS)
    if isinstance(cause, OSError):
        return TransferError(f"{where}: a file here could not be read", evidence=text)
    if isinstance(cause, OutcomeUnknownError):
        return cause
    raise error


def _refused(error: Any, where: str, text: str) -> OrchError:
    code = _code(error)
    if code in REFUSED:
        return AuthError(f"{where}: the object store refuses ({code})", evidence=text, way_out=CREDENTIALS)
    if code in ("RequestTimeTooSkewed", "RequestExpired"):
        return AuthError(
            f"{where}: the clock of this machine is wrong for the object store", evidence=text, way_out="timedatectl"
        )
    if code == "NoSuchBucket":
        return UsageError(f"{where}: there is no such bucket", evidence=text, way_out="make it, or correct --to")
    if code in FULL:
        return TransferError(
            f"{where}: the object store is full; what is current there is as it was",
            evidence=text,
            way_out="free some space there, then orch publish again",
        )
    return TransferError(
        f"{where}: the object store failed ({code}); what is current there is as it was",
        evidence=text,
        way_out="orch publish again: what has arrived is not sent again",
    )


def _code(error: Exception) -> str:
    response = getattr(error, "response", None)
    return str((response or {}).get("Error", {}).get("Code", "")) if isinstance(response, dict) else ""


def _text(error: Exception) -> str:
    return (str(error) or type(error).__name__)[:500]
