package iwarp

import "time"

// SetLendTime sets how long a receiving side stays lent to a program that does not wait. Call it before
// there are QPs.
func SetLendTime(d Device, t time.Duration) { d.(*soft).lendTime = t }

// LoansTaken returns how many Waits on c have read a connection themselves.
func LoansTaken(c CQ) int {
	q := c.(*cq)
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.loan.taken
}

// LeaveKick makes c look as if its last borrower had been kicked, and its QP had ended before it read again.
func LeaveKick(c CQ, q QP) {
	x := c.(*cq)
	x.mu.Lock()
	x.loan.kicked = q.(*qp)
	x.mu.Unlock()
}
