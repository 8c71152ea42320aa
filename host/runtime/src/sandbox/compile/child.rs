pub fn compile_child_main(){}
