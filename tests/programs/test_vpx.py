"""libvpx, the VP9 codec: frames encoded by several threads, then decoded."""

from trial import Side, Trial

WIDTH, HEIGHT, FRAMES = 320, 176, 40


def film() -> bytes:
    """Moving patterns, uncompressed, in the Y4M format."""
    parts = [f"YUV4MPEG2 W{WIDTH} H{HEIGHT} F25:1 Ip C420jpeg\n".encode()]
    for frame in range(FRAMES):
        luma = b"".join(
            bytes((x * y // (frame + 3) + 5 * frame) & 255 for x in range(WIDTH)) for y in range(HEIGHT)
        )
        chroma = bytes((frame * 6 + n // 97) & 255 for n in range(WIDTH * HEIGHT // 4))
        parts += [b"FRAME\n", luma, chroma, chroma[::-1]]
    return b"".join(parts)


def test_vpx(trial: Trial) -> None:
    """VP9: 40 frames encoded and decoded by several threads; the same checksum of each frame"""
    encoder = trial.program("vpxenc", "--help")
    decoder = trial.program("vpxdec")
    source = film()

    def work(side: Side) -> tuple[int, str]:
        (side.folder / "film.y4m").write_bytes(source)
        options = ["--codec=vp9", "--good", "--cpu-used=4", "--threads=4", "--tile-columns=2", "--row-mt=1"]
        side.run(encoder, *options, "--target-bitrate=800", "-o", "film.webm", "film.y4m")
        size = (side.folder / "film.webm").stat().st_size
        return size, side.run(decoder, "--threads=4", "--frame-parallel", "--md5", "--i420", "film.webm")

    size, checksum = trial.compare(work)
    assert 1000 < size < len(source) // 10
    assert len(checksum.split()[0]) == 32
