module github.com/rdistcc/rdistcc

go 1.26
