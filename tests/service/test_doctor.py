"""The doctor says what the service needs: its database and workers, the lock folder, PostgreSQL's tools."""

import os
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import text

from db import engine
from db.jobs import workers
from db.migrations import HEAD
from db.records import Owner
from sandbox.doctor import Finding, Readiness, examine_platform
from sandbox.process.programs import HostPackage, HostProgram
from service import doctor
from service.database import open_store
from service.doctor import can_work, examine_machine
from service.settings import load_settings


def found(settings):
    findings = examine_machine(settings)
    assert [each.name for each in findings if each.status != "ok" and not each.remedy] == []
    return {finding.name: finding for finding in findings}


def add_worker(store, name="w1", host="elsewhere"):
    with store.write() as session:
        workers.add_worker(
            session,
            name,
            Owner(host=host, pid=1, started="x"),
            platform="cpu",
            slot=0,
            device="d",
            kind="k",
            sandbox="docker",
            version="1",
        )


@pytest.fixture
def settings(empty_url):
    return load_settings(database_url=empty_url)


def test_a_store_that_is_not_made_yet_is_well_and_stays_unmade():
    settings = load_settings()
    before = list(settings.data_dir.iterdir())
    finding = found(settings)["store"]
    assert (finding.status, "will make" in finding.detail) == ("ok", True)
    assert list(settings.data_dir.iterdir()) == before


def test_the_store_is_named_with_its_revision(settings):
    open_store(settings).close()
    finding = found(settings)["store"]
    assert finding.status == "ok"
    assert finding.detail.endswith(f"at revision {HEAD}")


def test_a_store_of_an_older_revision_is_named_and_not_upgraded(settings):
    store = open_store(settings)
    with store.engine.begin() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '0002'"))
    finding = found(settings)["store"]
    assert finding.status == "ok"
    assert "0002" in finding.detail
    assert HEAD in finding.detail
    assert engine.revision_of(store.engine) == "0002"
    store.close()


def test_a_store_of_a_newer_version_is_of_no_use(settings):
    store = open_store(settings)
    with store.engine.begin() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    store.close()
    findings = examine_machine(settings)
    assert not can_work(findings)
    (finding,) = [each for each in findings if each.name == "store"]
    assert (finding.status, finding.remedy) == ("missing", "upgrade Kernelwright here")


def test_a_database_that_does_not_answer_is_missing_and_its_password_is_not_shown():
    settings = load_settings(database_url="postgresql+psycopg://me:hidden-word@127.0.0.1:1/none")
    finding = found(settings)["store"]
    assert finding.status == "missing"
    assert "127.0.0.1" in finding.detail
    assert "hidden-word" not in finding.detail + finding.remedy


def test_without_a_worker_jobs_would_wait_which_is_no_fault(settings):
    open_store(settings).close()
    finding = found(settings)["workers"]
    assert (finding.status, finding.detail) == ("optional", "none alive, 0 jobs waiting")
    assert "kernelwright worker" in finding.remedy


def test_workers_that_beat_are_named_and_those_that_are_silent_are_not(settings):
    store = open_store(settings)
    add_worker(store, "fresh", "host-a")
    add_worker(store, "silent", "host-b")
    with store.engine.begin() as connection:
        connection.execute(text("UPDATE workers SET heartbeat_at = '2020-01-01 00:00:00.000000' WHERE id = 'silent'"))
    finding = found(settings)["workers"]
    assert (finding.status, finding.detail) == ("ok", "cpu 0 on host-a; 0 jobs waiting")
    store.close()


@pytest.mark.postgres
def test_a_pg_dump_as_new_as_the_server_is_there(postgres_url):
    finding = found(load_settings(database_url=postgres_url))["pg_dump"]
    assert finding.status == "ok", finding


@pytest.mark.postgres
@pytest.mark.parametrize(("program", "said"), [(None, "not found"), ("#!/bin/sh\necho pg_dump 9.6.1\n", "cannot read")])
def test_a_pg_dump_that_is_missing_or_too_old_is_said_with_the_package_to_install(
    postgres_url, monkeypatch, tmp_path, program, said
):
    old: Path | None = None
    if program is not None:
        old = tmp_path / "pg_dump"
        old.write_text(program)
        old.chmod(0o755)
    monkeypatch.setattr(doctor, "find_pg_dump", lambda: None if old is None else str(old))
    finding = found(load_settings(database_url=postgres_url))["pg_dump"]
    assert finding.status == "optional"
    assert said in finding.detail
    assert "postgresql-client-" in finding.remedy


def test_a_lock_folder_that_is_none_or_closed_is_missing(tmp_path, monkeypatch):
    assert found(load_settings(lock_dir=tmp_path / "none"))["lock folder"].status == "missing"
    assert found(load_settings(lock_dir=tmp_path))["lock folder"].status == "ok"
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # root may write everywhere
    assert found(load_settings(lock_dir=tmp_path))["lock folder"].status == "missing"


def test_what_a_platform_lacks_is_named_with_its_remedy():
    programs = (
        HostProgram("no-such-compiler", "compiles kernels", "apt-get install it", required=True),
        HostProgram("no-such-tool", "helps", "apt-get install that"),
    )
    readiness = examine_platform("riscv", "kernelwright-riscv:none", programs)
    assert not readiness.ready
    assert [(each.name, each.status, each.remedy) for each in readiness.missing] == [
        ("no-such-compiler", "missing", "apt-get install it")
    ]
    assert readiness.image.status == "optional"
    if "is not there" in readiness.image.detail:  # a daemon answers
        assert readiness.image.remedy == "kernelwright sandbox build --platform riscv"
    assert examine_platform("simulated", "kernelwright-cpu:none", ()).ready


@pytest.mark.parametrize("required", [True, False])
def test_a_package_that_sandboxes_are_shown_is_named_where_it_is_missing(required):
    package = HostPackage("Triton", "runs kernels", "pip install it", present=False, required=required)
    readiness = examine_platform("triton", "kernelwright-cpu:none", (), (package,))
    assert readiness.ready is not required
    [absent] = readiness.absent
    assert (absent.name, absent.detail, absent.remedy) == ("Triton", "not installed; runs kernels", "pip install it")
    here = examine_platform("triton", "kernelwright-cpu:none", (), (replace(package, present=True),))
    assert here.ready
    assert not here.absent


def test_doctor_says_that_no_compiler_for_gpus_is_installed(monkeypatch):
    monkeypatch.setattr("evaluator.platforms.cuda.platform.toolkit", lambda: None)
    cuda = found(load_settings())["platform cuda"]
    assert (cuda.status, cuda.remedy) == ("optional", "pip install 'kernelwright[cuda]'")
    assert "NVIDIA's NVRTC: not installed; compiles kernels for GPUs" in cuda.detail


def test_a_platform_that_cannot_run_here_is_no_fault_of_the_machine(monkeypatch):
    lacking = Readiness(
        Finding("image", "optional", "no image", "make it"), (Finding("clang-19", "missing", "not found", "get it"),)
    )
    monkeypatch.setattr("service.doctor.examine_platform", lambda *arguments: lacking)
    riscv = found(load_settings())["platform riscv"]
    assert (riscv.status, riscv.remedy) == ("optional", "make it, or for the process sandbox get it")
    assert "neither its image nor clang-19 is here" in riscv.detail
