"""perl, whose every value is a block of malloc's."""

from trial import Trial

SCRIPT = r"""
use strict; use warnings; use threads;
use Digest::SHA 'sha256_hex'; use Storable qw(freeze thaw);
my %count; my @words = map { "word" . ($_ * 7919 % 1000) } 1 .. 100000;
$count{$_}++ for @words;
my $text = join ' ', sort { $count{$b} <=> $count{$a} || $a cmp $b } keys %count;
$text =~ s/word(\d+)/$1/g;
print scalar(keys %count), ' ', $count{word7}, ' ', length($text), "\n";
my @rows = map { { id => $_, name => "row $_" x ($_ % 9), tags => [1 .. $_ % 7] } } 1 .. 5000;
@rows = @{ thaw(freeze(\@rows)) } for 1 .. 3;
print sha256_hex(join '|', map { "$_->{id} $_->{name} @{$_->{tags}}" } @rows), "\n";
sub work { my %h; $h{"$_[0] $_"} = [$_] for 1 .. 20000; delete @h{grep { /7/ } keys %h}; scalar keys %h }
print join(' ', map { $_->join } map { threads->create(\&work, $_) } 1 .. 3), "\n";
"""


def test_perl(trial: Trial) -> None:
    """Hashes, sorting, expressions, Storable, threads"""
    perl = trial.program("perl", "--version")
    lines = trial.compare(lambda side: side.run(perl, "-e", SCRIPT)).splitlines()
    assert lines[0] == "1000 100 3889"
    left = [sum("7" not in f"{seed} {n}" for n in range(1, 20001)) for seed in (1, 2, 3)]
    assert lines[2].split() == [str(count) for count in left]
