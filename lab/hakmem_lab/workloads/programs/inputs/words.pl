# words.pl COUNT SEED: hashes of arrays of words, changed by patterns, sorted; prints a sum.
use strict;
use warnings;

my ($count, $state) = @ARGV;
$state = $state % 2147483647 + 1;

sub draw {
    my ($limit) = @_;
    $state = $state * 48271 % 2147483647;    # below 2**53: exact
    return $state % $limit;
}

my %seen;
for my $number (1 .. $count) {
    my $text = join ' ', map { sprintf '%x', draw(1 << 30) } 0 .. draw(8);
    $text =~ s/([0-9]{3,})/<$1>/g;
    push @{ $seen{ substr $text, 0, 3 } }, { number => $number, text => $text, words => [ split / /, $text ] };
}
delete $seen{$_} for grep { draw(3) == 0 } sort keys %seen;
my $sum = 0;
for my $key (sort keys %seen) {
    for my $record (sort { $a->{text} cmp $b->{text} || $a->{number} <=> $b->{number} } @{ $seen{$key} }) {
        $sum = ($sum * 31 + length($record->{text}) + @{ $record->{words} }) % 1000000007;
    }
}
print scalar(keys %seen), " $sum\n";
