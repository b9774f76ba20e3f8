# A program in a box that keeps what it gets, byte by byte, and reads it without forgiving anything. Answers 200 to each
# request; GET /taken gives the heads that came since it was last asked, in hexadecimal, a line each.

import asyncio
import re

heads = []


async def body(reader, head):
    fields = [line.split(b":", 1) for line in head.split(b"\r\n")[1:-2]]
    values = lambda wanted: [value.strip() for name, value in fields if name.lower() == wanted]
    if values(b"transfer-encoding"):
        while size := int((await reader.readuntil(b"\r\n")).split(b";")[0], 16):
            await reader.readexactly(size + 2)
        while await reader.readuntil(b"\r\n") != b"\r\n":
            pass
    for length in values(b"content-length"):
        await reader.readexactly(int(length))


async def serve(reader, writer):
    try:
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            await body(reader, head)
            text = b"here"
            if re.match(rb"GET /taken ", head):
                text = b"".join(head.hex().encode() + b"\n" for head in heads)
                heads.clear()
            else:
                heads.append(head)
            writer.write(b"HTTP/1.1 200 OK\r\nX-From: box\r\nContent-Length: %d\r\n\r\n" % len(text))
            if not head.startswith(b"HEAD "):
                writer.write(text)
            await writer.drain()
    except (asyncio.IncompleteReadError, ConnectionError):
        pass
    finally:
        writer.close()


async def main():
    server = await asyncio.start_server(serve, "127.0.0.1", 3000, limit=1 << 20)
    async with server:
        await server.serve_forever()


asyncio.run(main())
