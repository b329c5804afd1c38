"""java: its objects have a heap of their own; the machine itself, its compilers and its C libraries use malloc."""

from trial import Side, Trial

PROGRAM = """
import java.util.*;
import java.util.stream.*;
import java.util.zip.*;
public class Work {
    public static void main(String[] arguments) throws Exception {
        Map<Integer, Long> groups = IntStream.range(0, 200000).parallel().boxed()
            .collect(Collectors.groupingBy(i -> i % 97, Collectors.counting()));
        byte[] data = new byte[2000000];
        for (int i = 0; i < data.length; i++) data[i] = (byte) (i * 31 % 251);
        Deflater deflater = new Deflater(); // its buffers are malloc's
        deflater.setInput(data);
        deflater.finish();
        byte[] packed = new byte[data.length];
        int length = deflater.deflate(packed);
        deflater.end();
        Inflater inflater = new Inflater();
        inflater.setInput(packed, 0, length);
        byte[] again = new byte[data.length];
        inflater.inflate(again);
        inflater.end();
        System.out.println(groups.size() + " " + groups.get(5) + " " + Arrays.equals(data, again));
    }
}
"""


def test_java(trial: Trial) -> None:
    """Its compiler, parallel streams, compression"""
    java = trial.program("java", "--version")
    javac = trial.program("javac")

    def work(side: Side) -> str:
        (side.folder / "Work.java").write_text(PROGRAM)
        side.run(javac, "Work.java")
        return side.run(java, "-Xmx256m", "-cp", ".", "Work")

    assert trial.compare(work) == "97 2062 true\n"
    trial.note("Java's objects have a heap of their own")
