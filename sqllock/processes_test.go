package sqllock_test

const workerEnv = "LATCHKEY_TEST_WORKER"

func runWorker(string) int { return 0 }
