# Links the library that is precompiled for the board's processor. PlatformIO runs this in the library's directory.
from pathlib import Path

Import("env")  # noqa: F821
board = env.BoardConfig()  # noqa: F821
processors = [board.get(key, "") for key in ("build.cpu", "build.mcu")]
folders = [Path("src", processor).resolve() for processor in processors if processor]
folder = next((folder for folder in folders if (folder / "libarenite.a").is_file()), None)
if folder is None:
    raise SystemExit(f"arenite is not precompiled for {' or '.join(filter(None, processors))}: see tests/capi/arduino/library")
env.Append(LIBPATH=[str(folder)], LIBS=["arenite"])  # noqa: F821
