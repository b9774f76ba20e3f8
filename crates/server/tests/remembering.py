# Answers questions over two fifos with the word it has in its memory only, and only while what it watches is still told to it:
# below the working directory, and a folder of the image.
import ctypes
import os
import sys

IN_CREATE = 0x100

word = sys.argv[1]
kernel = ctypes.CDLL(None)
watches = kernel.inotify_init1(os.O_NONBLOCK)
os.makedirs("/work/watched", exist_ok=True)
for place in (b"/work/watched", b"/usr/lib"):
    if kernel.inotify_add_watch(watches, place, IN_CREATE) < 0:
        sys.exit(f"cannot watch {place}")
os.mkfifo("/run/ask")
os.mkfifo("/run/answer")
open("/run/remembering", "w").close()


def told(place):
    path = os.path.join(place, "new")
    open(path, "w").close()
    os.unlink(path)
    try:
        return b"new" in os.read(watches, 4096)
    except BlockingIOError:
        return False


while True:
    with open("/run/ask") as ask:
        ask.read()
    deaf = [place for place in ("/work/watched", "/usr/lib") if not told(place)]
    with open("/run/answer", "w") as answer:
        answer.write(f"nothing is told of {deaf}" if deaf else word)
