"""An engine that outlives the runs that use it: ``python -m serve_envs.inference_command --preset smollm2``."""

from __future__ import annotations

import argparse
import json
import signal
import threading

import ray

from rllib_agentic.components import parse_settings
from rllib_agentic.engines.vllm_settings import VLLMEngineSettings
from rllib_agentic.rl_module.model_settings import ModelSettings
from serve_envs.app import undeploy
from serve_envs.inference import deploy_inference


def main() -> None:
    """Deploy, say where, and wait for Ctrl-C; then stop what was deployed.

    The engine samples nothing before a run (or ``PUT /v1/weights/VERSION``) brings weights.
    """
    parser = argparse.ArgumentParser(description=__doc__)
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--preset", choices=("tiny", "smollm2"), help="of section model")
    which.add_argument("--path", help="a model's folder or hub id")
    parser.add_argument("--model", type=json.loads, default={}, help="more of section model, as JSON")
    parser.add_argument("--engine", type=json.loads, default={}, help="section engine without its type, as JSON")
    parser.add_argument("--name", default="vllm", help="of the Serve application")
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--max-model-len", type=int, default=4096, help="longest context with its turn, in tokens")
    parser.add_argument("--ray-address", help="of a running cluster; none starts one here")
    options = parser.parse_args()
    chosen = {"preset": options.preset} if options.preset else {"path": options.path}
    model = parse_settings(ModelSettings, chosen | options.model, "model")
    settings = parse_settings(VLLMEngineSettings, {"http_port": options.port, **options.engine}, "engine")
    ray.init(address=options.ray_address, include_dashboard=False)
    args = settings.vllm_args(model_dtype=model.dtype, max_context_tokens=options.max_model_len, seed=0)
    app = deploy_inference(model, settings, args, name=options.name)
    print(f"engine: {{type: vllm, address: {app}}}, or by HTTP http://127.0.0.1:{settings.http_port}/{app}", flush=True)
    over = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: over.set())
    over.wait()
    undeploy(app)


if __name__ == "__main__":
    main()
