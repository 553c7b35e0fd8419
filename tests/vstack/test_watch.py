"""Stores that are brought up to date as their files come."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from pathlib import Path

import boto3
import pytest

import virtualstack as vs
import virtualstack.vstack.watch as watching
from tests.vstack.test_sync import days, write_day
from virtualstack.cli.command import main
from virtualstack.errors import SourceNotFoundError, StorageError

__all__ = ["days"]


def watched(recipe, **options):
    """Watch a store of three days while another file comes; return the seconds until it is placed, and what is told."""
    repository = vs.Repository.build("a.vstack", recipe, sample=0).repository
    stop, found, begin = threading.Event(), [], 0.0
    for done in repository.watch(stop=stop, sample=0, **options):
        found.append(done)
        if len(found) == 1:
            threading.Timer(0.5, write_day, [5]).start()
            begin = time.monotonic() + 0.5
        elif done.placed or len(found) > 8:
            stop.set()
    return time.monotonic() - begin, found


@pytest.mark.parametrize("settle", [0, 1])
def test_a_file_that_comes_is_placed_soon(days, monkeypatch, settle):
    monkeypatch.setitem(sys.modules, "watchfiles", None)
    for day in range(3):
        os.utime(f"day{day}.nc", (0, 0))
    seconds, found = watched(vs.Recipe(["day*.nc"], dim="time", settle=settle))
    assert [x.rpartition("/")[2] for x in found[-1].placed] == ["day5.nc"]
    assert seconds < 10  # 2 on a machine that does nothing else
    assert vs.Repository.open("a.vstack").open_dataset()["time"].values.tolist() == [0, 1, 2, 5]


def test_folders_are_watched(days):
    pytest.importorskip("watchfiles")
    seconds, found = watched(days, interval=600)
    assert found[-1].placed
    assert seconds < 30
    assert not [x for x in threading.enumerate() if x.name == "virtualstack-watch" and not x.daemon]


def test_messages_of_a_queue_begin_runs(s3_server, tmp_path, monkeypatch):
    """The bucket tells of each new object; messages are deleted after the run."""
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.chdir(tmp_path)
    sqs = boto3.client("sqs", endpoint_url=s3_server.endpoint)
    url = sqs.create_queue(QueueName="new")["QueueUrl"]
    arn = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    s3_server.client.create_bucket(Bucket="told")
    told = {"QueueConfigurations": [{"QueueArn": arn, "Events": ["s3:ObjectCreated:*"]}]}

    def put(day):
        write_day(day)
        s3_server.put(f"day{day}.nc", Path(f"day{day}.nc").read_bytes(), bucket="told")

    put(0)
    s3_server.client.put_bucket_notification_configuration(Bucket="told", NotificationConfiguration=told)
    recipe = vs.Recipe(["s3://told/day*.nc"], dim="time")
    repository = vs.Repository.build("a.vstack", recipe, storage={"s3://told/": s3_server.options}, sample=0).repository
    stop, placed = threading.Event(), []
    for done in repository.watch(queue=url, stop=stop, sample=0):
        placed += [x.rpartition("/")[2] for x in done.placed]
        if len(placed) == 2:
            stop.set()
        else:
            threading.Thread(target=put, args=[len(placed) + 1]).start()
    assert placed == ["day1.nc", "day2.nc"]
    counts = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["All"])["Attributes"]
    assert [counts[f"ApproximateNumberOfMessages{x}"] for x in ("", "NotVisible")] == ["0", "0"]
    with pytest.raises(StorageError, match="queue"):
        next(repository.watch(queue=f"{url}-gone", sample=0))


def test_a_queue_that_is_never_empty_begins_a_run(s3_server, monkeypatch):
    """It gives messages again before all are received: here at once, else after half a minute."""
    monkeypatch.setattr(watching, "_MAX_MESSAGES", 30)
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    sqs = boto3.client("sqs", endpoint_url=s3_server.endpoint)
    url = sqs.create_queue(QueueName="full", Attributes={"VisibilityTimeout": "0"})["QueueUrl"]
    sqs.send_message(QueueUrl=url, MessageBody="new")
    queue = watching._Queue(url)
    assert queue.receive()
    queue._received.append("not a message")
    with pytest.raises(StorageError, match="1 message of the queue"):
        queue.delete()
    counts = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["All"])["Attributes"]
    assert counts["ApproximateNumberOfMessages"] == "0"


def test_the_report_comes_before_an_error_of_the_queue(s3_server, days, monkeypatch):
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    sqs = boto3.client("sqs", endpoint_url=s3_server.endpoint)
    url = sqs.create_queue(QueueName="short")["QueueUrl"]
    sqs.send_message(QueueUrl=url, MessageBody="new")
    repository = vs.Repository.build("a.vstack", days, sample=0).repository
    told = []
    for found in repository.watch(queue=url, interval=600, sample=0):
        told.append(found)
        if len(told) == 1:
            write_day(5)
        elif len(told) == 2:
            sqs.delete_queue(QueueUrl=url)
        else:
            break
    assert [x.rpartition("/")[2] for x in told[1].placed] == ["day5.nc"]
    assert isinstance(told[2], StorageError)


def test_a_server_that_does_not_answer_is_told_and_asked_again(days, monkeypatch):
    repository = vs.Repository.build("a.vstack", days, sample=0).repository
    told = []
    for found in repository.watch(interval=0.1, sample=0):
        told.append(found)
        if len(told) == 1:
            for day in range(3):
                Path(f"day{day}.nc").rename(f"away{day}.nc")
        elif len(told) == 2:
            for day in range(3):
                Path(f"away{day}.nc").rename(f"day{day}.nc")
            write_day(6)
        else:
            break
    assert isinstance(told[1], SourceNotFoundError)
    assert [x.rpartition("/")[2] for x in told[2].placed] == ["day6.nc"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_command(days, capsys, number):
    vs.Repository.build("a.vstack", days, sample=0)
    before = signal.getsignal(number)
    threading.Timer(1.5, os.kill, [os.getpid(), number]).start()
    assert main(["watch", "a.vstack"]) == 0
    assert "snapshot 0: nothing new" in capsys.readouterr().out
    assert signal.getsignal(number) is before
