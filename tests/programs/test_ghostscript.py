"""ghostscript: a document made by a program, turned into PDF, and both rendered."""

from trial import Side, Trial, file_hash

DOCUMENT = r"""%!PS
/tree { % depth
  dup 0 eq { pop } {
    newpath 0 0 moveto 0 60 lineto stroke 0 60 translate 0.72 dup scale
    gsave 28 rotate dup 1 sub tree grestore gsave -33 rotate dup 1 sub tree grestore pop
  } ifelse
} bind def
/page { % number
  /number exch def
  gsave 300 80 translate 2 dup scale 0.3 number 20 div 0.5 setrgbcolor 11 tree grestore
  /Times-Roman findfont 14 scalefont setfont 40 780 moveto (Page ) show number 10 string cvs show
  /Helvetica-Bold findfont [18 0 6 18 0 0] makefont setfont
  0 1 25 { /line exch def 40 740 line 14 mul sub moveto
    /words 40 dict def 0 1 30 { words exch dup 97 add line add 3 mul 1 string dup 0 4 -1 roll 128 mod put put } for
    words { exch pop show } forall } for
  << /ShadingType 3 /ColorSpace /DeviceRGB /Coords [450 650 5 450 650 90] /Function
     << /FunctionType 2 /Domain [0 1] /C0 [1 0.9 0.2] /C1 [0.1 0.2 0.8] /N 1.5 >> >> shfill
  1 vmreclaim
  showpage
} bind def
1 1 6 { page } for
"""


def test_ghostscript(trial: Trial) -> None:
    """Six pages of recursion, text and shading to PDF, and to pictures from both: the same pixels"""
    gs = trial.program("gs", "--version")

    def work(side: Side) -> list[str]:
        def render(source: str, target: str) -> list[str]:
            side.run(gs, "-q", "-dSAFER", "-sDEVICE=png16m", "-r72", "-o", f"{target}-%d.png", source)
            return [file_hash(path) for path in sorted(side.folder.glob(f"{target}-*.png"))]

        (side.folder / "document.ps").write_text(DOCUMENT)
        side.run(gs, "-q", "-dSAFER", "-sDEVICE=pdfwrite", "-o", "document.pdf", "document.ps")
        return render("document.ps", "direct") + render("document.pdf", "again")

    pictures = trial.compare(work)
    assert len(pictures) == 12
    assert len(set(pictures[:6])) == 6
