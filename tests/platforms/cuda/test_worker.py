"""Jobs of platform `cuda` on a worker without a GPU."""

from pathlib import Path

import pytest

from service.mock_llm.script import Entry, Script, When
from service.mock_llm.server import start_llm_server
from tests.fakes import fenced
from tests.platforms.kits import OP, cuda
from tests.support.forked_commands import CommandServer
from tests.support.worker_processes import fleet

pytestmark = [pytest.mark.docker, pytest.mark.xdist_group("cuda")]


def test_where_no_worker_has_a_gpu_screening_decides(tmp_path: Path, command_server: CommandServer) -> None:
    script = Script(match=(Entry(text=fenced(cuda()), when=When(role="coder"), repeat=True),))
    with (
        start_llm_server(script) as model,
        fleet(tmp_path, command_server, KERNELWRIGHT_PLATFORM="cuda", KERNELWRIGHT_ARCHITECTURES="sm_90a") as there,
    ):
        there.worker()
        job_id = there.submit(
            source=OP,
            platform="cuda",
            strategy="screen-then-time",
            model="openai/scripted",
            api_base=model.url,
            price="1.5,6",
        )
        job = there.wait_for(job_id)
        assert job.status.value == "done" and job.stop_reason in ("shown", "rounds"), job.error
        [(digest, evaluation_id)] = there.evaluated(job_id)
        assert job.best_evaluation_id == evaluation_id and digest
